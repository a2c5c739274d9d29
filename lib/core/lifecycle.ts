import { LockConfigError, LockUnavailableError } from '../api/errors.js';
import type { LockEvent } from '../api/lock-events.js';
import type { Lock } from '../api/lock.js';
import { nameOf } from './events/subject.js';

/** The state of a `LockManager`, which decides who may acquire locks. */
export class Lifecycle {
  state: 'new' | 'starting' | 'running' | 'draining' | 'stopped' = 'new';

  /**
   * @param outer the locks around the caller. A caller that holds one of them may still acquire more locks during a
   * drain
   * @throws LockUnavailableError if the application is shutting down
   * @throws LockConfigError if the manager hasn't been started
   */
  assertAccepting(subject: LockEvent, outer: readonly Pick<Lock, 'isHeld'>[]): void {
    if (this.state === 'running') return;
    if (this.state === 'new' || this.state === 'starting') {
      throw new LockConfigError('LockManager has not been started. Await start() first.');
    }
    if (this.state === 'draining' && outer.some((lock) => lock.isHeld())) return;
    throw stopping(subject);
  }
}

/** The error for callers rejected because the application is shutting down. */
export function stopping(subject: LockEvent): LockUnavailableError {
  return new LockUnavailableError(`${nameOf(subject)} was not acquired: the application is shutting down.`, {
    key: subject.key,
    provider: subject.provider,
  });
}
