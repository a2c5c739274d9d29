import type { LockManager } from '../../engine/lock-manager.js';
import type { LockProvider } from '../../engine/lock-provider.js';
import type { LockEventMap, LockEventName } from '../../lock/lock-events.js';

type Recorded = { [N in LockEventName]: { readonly name: N; readonly event: LockEventMap[N] } }[LockEventName];

const EVENTS: readonly LockEventName[] = [
  'waiting',
  'acquired',
  'released',
  'renewed',
  'lost',
  'timeout',
  'skipped',
  'unconfirmed',
  'unavailable',
];

/** An application as the backend sees it: an engine with a provider of its own. */
export class TestProcess {
  readonly events: Recorded[] = [];

  constructor(
    readonly locks: LockManager,
    readonly provider: LockProvider,
    onEvent: (event: object) => void,
  ) {
    for (const name of EVENTS) {
      locks.events.on(name, (event) => {
        this.events.push({ name, event } as Recorded);
        onEvent(event);
      });
    }
  }

  /** How many callers of this process were queued for the key so far. */
  queuedFor(key: string): number {
    return this.events.filter(({ name, event }) => name === 'waiting' && event.key === key).length;
  }
}
