import { LockConfigError, LockUnavailableError } from '../api/errors.js';
import type { LockEvent } from '../api/lock-events.js';
import type { Lock } from '../api/lock.js';
import { nameOf } from './events/subject.js';

/** From the first start to the stop of one `LockManager`, and which callers may acquire in between. */
export class Lifecycle {
  state: 'new' | 'starting' | 'running' | 'draining' | 'stopped' = 'new';

  /**
   * @param outer the locks around the caller: while one is held, it may acquire what it still needs until the end of a drain
   * @throws LockUnavailableError when the application stops; LockConfigError when it was not started
   */
  assertAccepting(subject: LockEvent, outer: readonly Pick<Lock, 'isHeld'>[]): void {
    if (this.state === 'running') return;
    if (this.state === 'new' || this.state === 'starting') {
      throw new LockConfigError('LockManager was not started. Await start() first.');
    }
    if (this.state === 'draining' && outer.some((lock) => lock.isHeld())) return;
    throw stopping(subject);
  }
}

/** The error for callers that the application sends away when it stops. */
export function stopping(subject: LockEvent): LockUnavailableError {
  return new LockUnavailableError(`${nameOf(subject)} was not acquired: the application is stopping.`, {
    key: subject.key,
    provider: subject.provider,
  });
}
