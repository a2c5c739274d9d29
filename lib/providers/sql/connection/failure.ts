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

/** What to do about a rejected login. */
export const LOGIN_REMEDY = 'Check the username and password, and which hosts the account may log in from.';

/** What to do about faults that a retry can't fix. */
const REMEDIES: Readonly<Partial<Record<Fault, string>>> = {
  login: LOGIN_REMEDY,
  'no-database': 'Check the database name, and that the account can access it.',
  'no-table': 'The table was dropped. Create it in a migration, or set "synchronize".',
  'other-table': 'The table does not match this version. Create it in a migration, or set "table" to another name.',
  'read-only': 'Configure the provider with the address of the writer.',
  refused:
    'The account needs SELECT, INSERT, and UPDATE on the lock table (and DELETE for purge()), on a server that accepts writes.',
};

/** Why a statement failed; undefined for unknown errors, such as a lost connection. */
export function faultOf(error: unknown): Fault | undefined {
  const fault = FAULTS.get(propertyOf(error, 'errno')) ?? FAULTS.get(propertyOf(error, 'code'));
  if (fault) return fault;
  // Postgres reports an internal error if the table is dropped while a statement starts.
  return error instanceof Error && error.message.includes('could not open relation with OID') ? 'no-table' : undefined;
}

/** What to do about an error that the server would repeat; undefined if a retry may help. */
export function remedyOf(error: unknown): string | undefined {
  const fault = faultOf(error);
  return fault && REMEDIES[fault];
}

/** Whether a statement failed because of another transaction, so a retry may succeed. */
export function isContention(error: unknown): boolean {
  return ['busy', 'rolled-back'].includes(faultOf(error) ?? '');
}

/** Pauses before retrying something that was busy. Ends early if the signal aborts. */
export function pauseBeforeRetry(
  { clock, random }: Pick<BackendContext, 'clock' | 'random'>,
  signal: AbortSignal = new AbortController().signal,
): Promise<void> {
  return pause(clock, backOff(random, 0, { first: 60, most: 60 }), signal);
}

/** The error to throw to a caller. @param what the subject of the message, such as `Lock "order:42"` */
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
        `${what} of provider "${details.provider}" is not available. The database rejected it: ${reason}. ${remedy}`,
        { ...details, refused: faultOf(error) !== 'no-table', cause: error },
      )
    : new LockUnavailableError(
        `${what} of provider "${details.provider}" is not available: ${reason}. Check the address, credentials, and server log, and that the server is up.`,
        { ...details, cause: error },
      );
}

/** The reason given by the server or the driver. */
export function reasonOf(error: unknown): string {
  // If all of a host name's addresses refuse the connection, Node's error contains only a code.
  const reason = (error instanceof Error && error.message) || String(propertyOf(error, 'code') ?? error);
  return reason.replace(/\.$/, '');
}

/** The server didn't respond in time. The statement's outcome is unknown. */
export class SilentServerError extends Error {
  // Private because a late answer may contain rows, which would show up in a log.
  readonly #answer: Promise<unknown> | undefined;

  /** @param answer the server's answer, if it arrives later */
  constructor(message: string, answer?: Promise<unknown>) {
    super(message);
    this.#answer = answer;
  }

  /** The server's answer, if it arrives later. */
  get answer(): Promise<unknown> | undefined {
    return this.#answer;
  }
}

/** Resolves like `work` if it does so within `timeout` ms. @throws SilentServerError */
export function inTime<T>(clock: Clock, timeout: number, work: Promise<T>): Promise<T> {
  return withTimeout(clock, timeout, work, () => {
    throw silentFor(timeout);
  });
}

export function silentFor(timeout: number, answer?: Promise<unknown>): SilentServerError {
  return new SilentServerError(`The database did not respond within ${timeout} ms.`, answer);
}
