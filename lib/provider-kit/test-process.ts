import type { LockManager } from '../core/lock-manager.js';
import type { LockProvider } from '../api/lock-provider.js';
import { LockUnavailableError } from '../api/errors.js';
import type { LockEventMap, LockEventName } from '../api/lock-events.js';
import type { LockOptions } from '../api/lock-options.js';
import type { Lock } from '../api/lock.js';

const TRIES = 10;

type Recorded = { [N in LockEventName]: { readonly name: N; readonly event: LockEventMap[N] } }[LockEventName];

const EVENTS: readonly LockEventName[] = [
  'waiting',
  'acquired',
  'released',
  'renewed',
  'lost',
  'busy',
  'skipped',
  'release-pending',
  'unavailable',
];

/** An application as the backend sees it: a `LockManager` with its own provider. */
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

  /**
   * Like `locks.tryAcquire`, but also works on a busy machine where, for example, opening a connection takes longer
   * than the core waits for a response. A timeout isn't a response, so the request is repeated.
   */
  async tryAcquire(key: string | readonly string[], options: LockOptions = {}): Promise<Lock | null> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.locks.tryAcquire(key, options);
      } catch (error) {
        if (tries === TRIES || !(error instanceof LockUnavailableError)) throw error;
      }
    }
  }

  /** How many callers in this process have been queued for the key so far. */
  queuedFor(key: string): number {
    return this.events.filter(({ name, event }) => name === 'waiting' && event.key === key).length;
  }
}
