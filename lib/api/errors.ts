import { BRAND, errorInJson, isError, safeCause } from './cause.js';
import type { DeadlockMember } from './deadlock.js';
import type { LockHolder } from './lock-holder.js';
import { printable } from './printable.js';

/** Details that every lock error carries. */
export interface LockErrorDetails {
  /** The logical key, or `null` when the error is not about one key. */
  readonly key?: string | null | undefined;
  /** The name under which the provider is registered, or `null` if the error does not concern a provider. */
  readonly provider?: string | null | undefined;
  /**
   * The underlying error, if any. The lock error keeps a copy with the same class, message, code, and stack, but
   * removes what drivers add: addresses with passwords, statements, and holder ids.
   */
  readonly cause?: unknown;
}

/** How a task ended after its lock was lost: see {@link LockLostError.outcome}. */
export type TaskOutcome =
  { readonly status: 'fulfilled'; readonly value: unknown } | { readonly status: 'rejected'; readonly reason: unknown };

/**
 * Why a lock was lost.
 *
 * - `expired`: the backend didn't confirm a renewal before the local deadline. It was unreachable, or the event loop
 *   was blocked.
 * - `revoked`: the backend reports that this process no longer holds the lock. The lock was force-released or flushed,
 *   or its session was killed.
 * - `max-hold`: `maxHold` elapsed.
 * - `shutdown`: the application shut down, and `shutdownGrace` elapsed.
 * - `released`: you used the lock after releasing it.
 * - `rolled-back`: the lock was held until the end, but the writes in its transaction (`entityManagerOf`) were rolled
 *   back.
 * - `commit-unknown`: the server didn't respond to COMMIT, so the writes in the transaction may or may not be saved.
 */
export type LossReason =
  'expired' | 'revoked' | 'max-hold' | 'shutdown' | 'released' | 'rolled-back' | 'commit-unknown';

/**
 * The base class of every error that this package throws. Errors from your own tasks are never wrapped.
 *
 * `instanceof` compares a brand and the code, so it also works if the process loads two copies of this package.
 */
export abstract class LockError extends Error {
  /** A stable, machine-readable error code, such as `LOCK_BUSY`. */
  abstract readonly code: string;
  /** The logical key, or `null` when the error is not about one key. */
  readonly key: string | null;
  /** The name under which the provider is registered, or `null` if the error does not concern a provider. */
  readonly provider: string | null;

  /** @param message one or more lines, which may quote the cause's message */
  constructor(message: string | readonly string[], details: LockErrorDetails = {}) {
    // A key error's cause comes from the application's own key function, so it's passed through as is.
    const cause = new.target === LockKeyError ? details.cause : safeCause(details.cause);
    const lines = [message].flat().map((line) => printable(quoting(line, details.cause, cause)));
    super(lines.join('\n'), cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.key = details.key ?? null;
    this.provider = details.provider ?? null;
    Object.defineProperty(this, BRAND, { value: true });
  }

  /** The error's JSON form, without its stack. */
  toJSON(): object {
    const { name, code, message, key, provider, cause } = this;
    return { name, code, message, key, provider, ...(cause !== undefined && { cause: errorInJson(cause) }) };
  }

  /** Compares the brand and the code because exception filters, Nest's or your own, use only `instanceof`. */
  static override [Symbol.hasInstance](error: unknown): boolean {
    if (Function.prototype[Symbol.hasInstance].call(this, error)) return true;
    return LockError.is(error) && (this === LockError || KINDS[error.code] === this);
  }

  /** The same as `error instanceof LockError`. */
  static is(error: unknown): error is LockError {
    return typeof error === 'object' && error !== null && BRAND in error;
  }
}

/**
 * Busy: another caller held the lock for the whole `wait`. Retry later, or tell the user that the resource is in use.
 */
export class LockBusyError extends LockError {
  readonly code = 'LOCK_BUSY';
  /** How long the caller waited, in ms. */
  readonly waited: number;
  /**
   * The holder that kept the caller out, or `null` if unknown. Not enumerable and not included in the JSON form. The
   * message names the holder's instance, so don't send it to clients; this package's HTTP, RPC, and GraphQL responses
   * don't include it.
   */
  declare readonly heldBy: LockHolder | null;

  constructor(
    message: string,
    details: LockErrorDetails & { waited?: number | undefined; heldBy?: LockHolder | null | undefined } = {},
  ) {
    super(message, details);
    this.waited = details.waited ?? 0;
    Object.defineProperty(this, 'heldBy', { value: details.heldBy ?? null });
  }

  override toJSON(): object {
    return { ...super.toJSON(), waited: this.waited };
  }
}

/**
 * Lost: you held the lock and lost it, so another process may hold it now. Stop writing, and check what your task has
 * already written.
 */
export class LockLostError extends LockError {
  readonly code = 'LOCK_LOST';
  /** Why it was lost. */
  readonly reason: LossReason;
  /** How the task ended, if a task ran to completion under the lost lock; otherwise `undefined`. */
  readonly outcome: TaskOutcome | undefined;

  constructor(message: string, details: LockErrorDetails & { reason: LossReason; outcome?: TaskOutcome | undefined }) {
    super(message, details);
    this.reason = details.reason;
    this.outcome = details.outcome;
  }

  /** The error's JSON form, without the task's value or error. */
  override toJSON(): object {
    return { ...super.toJSON(), reason: this.reason, outcome: this.outcome?.status };
  }
}

/** Unavailable: the backend is down, or the outcome of a request is unknown. Never thrown for a busy lock. */
export class LockUnavailableError extends LockError {
  readonly code = 'LOCK_UNAVAILABLE';
  /**
   * `false` only if none of the attempt's commands has left this process, so the backend has nothing to release.
   * Providers should set this; otherwise, each failed attempt's release is retried during an outage until the backend
   * responds. Default true.
   */
  readonly sent: boolean;

  constructor(message: string | readonly string[], details: LockErrorDetails & { sent?: boolean | undefined } = {}) {
    super(message, details);
    this.sent = details.sent ?? true;
  }

  override toJSON(): object {
    return { ...super.toJSON(), sent: this.sent };
  }
}

/** Misuse: a key, key template, or template value can't be used. Fix the code that builds the key. */
export class LockKeyError extends LockError {
  readonly code = 'LOCK_KEY';
}

/**
 * Misuse: an option, a provider name, or a decorated method can't work as written, or the server refuses an operation
 * that locks need.
 */
export class LockConfigError extends LockError {
  readonly code = 'LOCK_CONFIG';
  /**
   * `true` if a server refused the request because of a permissions or login problem, or a write to a read-only server.
   * The request succeeds once the server allows it; until then, a failover may use another server. If false (the
   * default), the options are wrong.
   */
  readonly refused: boolean;

  constructor(message: string | readonly string[], details: LockErrorDetails & { refused?: boolean | undefined } = {}) {
    super(message, details);
    this.refused = details.refused ?? false;
  }

  override toJSON(): object {
    return { ...super.toJSON(), refused: this.refused };
  }
}

/**
 * Deadlock: waiting longer cannot help, whatever the holders do.
 *
 * - With a `cycle`, callers wait for each other, and this one was rejected so the others can continue. Clients
 *   see it as busy, like a {@link LockBusyError}.
 * - Without a `cycle`, it is misuse: the caller would wait for itself (re-entry in another mode or with a larger
 * weight), a database detected a deadlock, or, in a test with `detectDeadlocks`, the application nests locks in
 * conflicting orders.
 */
export class LockDeadlockError extends LockError {
  readonly code = 'LOCK_DEADLOCK';
  /** How long the caller waited, in ms; 0 for misuse. */
  readonly waited: number;
  /**
   * The callers that wait for each other, starting with the rejected one; `null` for misuse. Not enumerable and not
   * included in the JSON form. The message names other callers' keys and instances, so don't send it to clients; this
   * package's HTTP, RPC, and GraphQL responses don't include it.
   */
  declare readonly cycle: readonly DeadlockMember[] | null;

  constructor(
    message: string,
    details: LockErrorDetails & {
      waited?: number | undefined;
      cycle?: readonly DeadlockMember[] | null | undefined;
    } = {},
  ) {
    super(message, details);
    this.waited = details.waited ?? 0;
    Object.defineProperty(this, 'cycle', { value: details.cycle ?? null });
  }

  override toJSON(): object {
    return { ...super.toJSON(), waited: this.waited };
  }
}

/**
 * Too many: 10,000 callers in this process are waiting for the key, or the backend's connection pool is full. Shed
 * load, or shorten `wait`.
 */
export class LockCapacityError extends LockError {
  readonly code = 'LOCK_CAPACITY';
}

/**
 * Conflict: another transaction changed or deleted the row after you read the entity, so nothing was written. Read the
 * entity again and redo the work, or let `RetryOnConflict` from `nestjs-distributed-lock/typeorm` do so.
 */
export class VersionConflictError extends LockError {
  readonly code = 'LOCK_VERSION_CONFLICT';
}

const KINDS: Readonly<Record<string, unknown>> = {
  LOCK_BUSY: LockBusyError,
  LOCK_LOST: LockLostError,
  LOCK_UNAVAILABLE: LockUnavailableError,
  LOCK_KEY: LockKeyError,
  LOCK_CONFIG: LockConfigError,
  LOCK_DEADLOCK: LockDeadlockError,
  LOCK_CAPACITY: LockCapacityError,
  LOCK_VERSION_CONFLICT: VersionConflictError,
};

/** The message, with the cause's text replaced by its safe version. */
function quoting(message: string, cause: unknown, safe: unknown): string {
  const [quoted, shown] = [cause, safe].map((error) => (isError(error) ? error.message : error));
  if (typeof quoted !== 'string' || typeof shown !== 'string' || quoted === '' || quoted === shown) return message;
  return message.replaceAll(quoted, () => shown);
}
