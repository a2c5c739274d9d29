import type { Answer, Grant } from '../../../lib/api/lock-provider.js';

export type Acquired = Answer<Grant | 'busy'>;

/** The answer of an `acquire` with its grant changed, now or later. */
export function changed(answer: Acquired, change: (grant: Grant) => Grant): Acquired {
  const apply = (outcome: Grant | 'busy') => (outcome === 'busy' ? 'busy' : change(outcome));
  return answer instanceof Promise ? answer.then(apply) : apply(answer as Grant | 'busy');
}
