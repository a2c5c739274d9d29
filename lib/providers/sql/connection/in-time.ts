import type { Clock } from '../../../api/clock.js';
import { withTimeout } from '../../../core/toolkit/timing.js';

/** The server has not answered in time. The outcome of the statement is unknown. */
export class SilentServerError extends Error {
  // Private, because a log would show it: a late answer may have rows.
  readonly #answer: Promise<unknown> | undefined;

  /** @param answer that of the server, if it comes later */
  constructor(message: string, answer?: Promise<unknown>) {
    super(message);
    this.#answer = answer;
  }

  /** That of the server, if it comes later. */
  get answer(): Promise<unknown> | undefined {
    return this.#answer;
  }
}

/** Resolves as `work` does, within `timeout` ms. @throws SilentServerError */
export function inTime<T>(clock: Clock, timeout: number, work: Promise<T>): Promise<T> {
  return withTimeout(clock, timeout, work, () => {
    throw silentFor(timeout);
  });
}

export function silentFor(timeout: number, answer?: Promise<unknown>): SilentServerError {
  return new SilentServerError(`The database has not answered for ${timeout} ms.`, answer);
}
