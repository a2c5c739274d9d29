import type { Grant } from '../../../lib/api/lock-provider.js';

export type Acquired = Promise<Grant | 'busy'>;

/** The answer of an `acquire` with its grant changed. */
export async function changed(answer: Acquired, change: (grant: Grant) => Grant): Acquired {
  const outcome = await answer;
  return outcome === 'busy' ? 'busy' : change(outcome);
}
