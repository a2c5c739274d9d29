import type { Clock } from '../../../api/clock.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../../api/errors.js';
import type { BackendContext } from '../../../api/lock-provider.js';
import { backOff, pause, withTimeout } from '../../../core/toolkit/timing.js';
import { propertyOf } from './answer.js';
import { FAMILIES } from './databases.js';
import type { Fault } from './dialect.js';

const FAULTS = new Map<unknown, Fault>();
for (const { faults } of Object.values(FAMILIES)) {
  for (const [fault, codes] of Object.entries(faults)) for (const code of codes) FAULTS.set(code, fault as Fault);
}

/** The remedy for a login that is refused. */
export const LOGIN_REMEDY = 'Check the user and the password, and from which hosts the account may log in.';

/** The remedies for faults that a retry does not cure. */
const REMEDIES: Readonly<Partial<Record<Fault, string>>> = {
  login: LOGIN_REMEDY,
  'no-database': 'Check the name of the database, and that the account may use it.',
  'no-table': 'The table was dropped: create it by the migration, or set "synchronize".',
  'other-table':
    'The table is not one of this version: create it by the migration, or give "table" the name of another one.',
  'read-only': 'Give the provider the address of the server that takes writes.',
  refused:
    'The account needs SELECT, INSERT and UPDATE on the table of the locks (DELETE for purge()), on a server that takes writes.',
};

/** The reason why a statement failed. Undefined for an error that none of the lists has, such as a lost connection. */
export function faultOf(error: unknown): Fault | undefined {
  const fault = FAULTS.get(propertyOf(error, 'errno')) ?? FAULTS.get(propertyOf(error, 'code'));
  if (fault) return fault;
  // Postgres, where the table is dropped while a statement begins: by an internal error.
  return error instanceof Error && error.message.includes('could not open relation with OID') ? 'no-table' : undefined;
}

/** The remedy for an error that the server would repeat; undefined where a retry may help. */
export function remedyOf(error: unknown): string | undefined {
  const fault = faultOf(error);
  return fault && REMEDIES[fault];
}

/** Whether a statement failed because of another transaction, so a retry may succeed. */
export function isContention(error: unknown): boolean {
  return ['busy', 'rolled-back'].includes(faultOf(error) ?? '');
}

/** Waits for the time between two tries of something that was busy, or until the signal aborts. */
export function pauseBeforeRetry(
  { clock, random }: Pick<BackendContext, 'clock' | 'random'>,
  signal: AbortSignal = new AbortController().signal,
): Promise<void> {
  return pause(clock, backOff(random, 0, { first: 60, most: 60 }), signal);
}

/** The error for a caller. @param what is not available, such as `Lock "order:42"` */
export function lockErrorOf(
  error: unknown,
  what: string,
  details: { readonly provider: string; readonly key?: string | undefined; readonly sent?: boolean },
): LockError {
  if (LockError.is(error)) return error;
  const reason = reasonOf(error);
  const remedy = remedyOf(error);
  return remedy
    ? new LockConfigError(
        `${what} of provider "${details.provider}" is not available. The database refused: ${reason}. ${remedy}`,
        { ...details, refused: faultOf(error) !== 'no-table', cause: error },
      )
    : new LockUnavailableError(
        `${what} of provider "${details.provider}" is not available: ${reason}. Check the address and the credentials, and that the server is up; its log says more.`,
        { ...details, cause: error },
      );
}

/** The words of the server or of the driver. */
export function reasonOf(error: unknown): string {
  // Node gives only a code where all addresses of a name refuse.
  const reason = (error instanceof Error && error.message) || String(propertyOf(error, 'code') ?? error);
  return reason.replace(/\.$/, '');
}

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
