import { BRAND, errorInJson, isError, safeCause } from './cause.js';
import type { DeadlockMember } from './deadlock.js';
import type { LockHolder } from './lock-holder.js';
import { printable } from './printable.js';

/** The place at which a lock error happened. */
export interface LockErrorDetails {
  /** The logical key, or `null` when the error is not about one key. */
  readonly key?: string | null | undefined;
  /** The name under which the provider is registered, or `null` when no provider is concerned. */
  readonly provider?: string | null | undefined;
  /**
   * The error below, if there is one. The lock error has a copy of it, with class, message, code and stack, and without what drivers note
   * besides: addresses with passwords, statements, ids of holders.
   */
  readonly cause?: unknown;
}

/** How a task ended that ran under a lock which was lost: see {@link LockLostError.outcome}. */
export type TaskOutcome =
  { readonly status: 'fulfilled'; readonly value: unknown } | { readonly status: 'rejected'; readonly reason: unknown };

/**
 * Why a lock was lost.
 *
 * - `expired`: no renewal was acknowledged before the local deadline (backend unreachable, blocked event loop).
 * - `revoked`: the backend reports that the lock is no longer ours (force-released, flushed, session killed).
 * - `max-hold`: `maxHold` has passed.
 * - `shutdown`: the application stopped and `shutdownGrace` has passed.
 * - `released`: it was released before, so the question comes too late.
 * - `rolled-back`: the lock was held to its end, but what was written in its transaction (`entityManagerOf`) was rolled back.
 * - `commit-unknown`: the server did not answer its COMMIT: what was written in its transaction may be saved, or not.
 */
export type LossReason =
  'expired' | 'revoked' | 'max-hold' | 'shutdown' | 'released' | 'rolled-back' | 'commit-unknown';

/**
 * The base of every error that this package throws. A user's own error is never wrapped in one.
 *
 * `instanceof` compares brands and codes, so it also holds for an error of another copy of this package in the process.
 */
export abstract class LockError extends Error {
  /** Stable, machine-readable name of the kind of error, such as `LOCK_BUSY`. */
  abstract readonly code: string;
  /** The logical key, or `null` when the error is not about one key. */
  readonly key: string | null;
  /** The name under which the provider is registered, or `null` when no provider is concerned. */
  readonly provider: string | null;

  /** @param message one line, or several of them. They may quote the message of the cause */
  constructor(message: string | readonly string[], details: LockErrorDetails = {}) {
    // An application computes its keys by itself, so what it throws meanwhile passes as it is.
    const cause = new.target === LockKeyError ? details.cause : safeCause(details.cause);
    const lines = [message].flat().map((line) => printable(quoting(line, details.cause, cause)));
    super(lines.join('\n'), cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.key = details.key ?? null;
    this.provider = details.provider ?? null;
    Object.defineProperty(this, BRAND, { value: true });
  }

  /** For logs, without the stack. */
  toJSON(): object {
    const { name, code, message, key, provider, cause } = this;
    return { name, code, message, key, provider, ...(cause !== undefined && { cause: errorInJson(cause) }) };
  }

  /** By brand and code, because filters of Nest and of applications know nothing but `instanceof`. */
  static override [Symbol.hasInstance](error: unknown): boolean {
    if (Function.prototype[Symbol.hasInstance].call(this, error)) return true;
    return LockError.is(error) && (this === LockError || KINDS[error.code] === this);
  }

  /** The same as `error instanceof LockError`. */
  static is(error: unknown): error is LockError {
    return typeof error === 'object' && error !== null && BRAND in error;
  }
}

/** Busy: somebody else held the lock for the whole `wait`. */
export class LockBusyError extends LockError {
  readonly code = 'LOCK_BUSY';
  /** How long the caller waited, in ms. */
  readonly waited: number;
  /**
   * The holder that kept the caller out, or `null` where that is not known. Not enumerable and not part of the JSON form. The message names its instance, so
   * an answer to a client must not show the message; those of this package do not.
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

/** Lost: the lock was ours and is not any more, so somebody else may hold it. */
export class LockLostError extends LockError {
  readonly code = 'LOCK_LOST';
  /** Why it was lost. */
  readonly reason: LossReason;
  /** How the task ended, where one ran to its end under the lost lock. */
  readonly outcome: TaskOutcome | undefined;

  constructor(message: string, details: LockErrorDetails & { reason: LossReason; outcome?: TaskOutcome | undefined }) {
    super(message, details);
    this.reason = details.reason;
    this.outcome = details.outcome;
  }

  /** Without what its task gave or threw. */
  override toJSON(): object {
    return { ...super.toJSON(), reason: this.reason, outcome: this.outcome?.status };
  }
}

/** Unavailable: the backend is down, or it is unknown what happened to a request. Never thrown for a busy lock. */
export class LockUnavailableError extends LockError {
  readonly code = 'LOCK_UNAVAILABLE';
  /**
   * `false` if certainly no command of the attempt has left this process, so that nothing of it is left in the backend. For authors of
   * providers: without it, each failed attempt of an outage is released again and again. Default true.
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

/** Misuse: a key, a key template or a value in it cannot be used. */
export class LockKeyError extends LockError {
  readonly code = 'LOCK_KEY';
}

/** Misuse: an option, a provider name or a decorated method cannot work as written, or the server refuses what locks need. */
export class LockConfigError extends LockError {
  readonly code = 'LOCK_CONFIG';
  /**
   * `true` if a server has refused it: a permission, a login, a write on a read-only server. Then it works again as soon as the server
   * allows it, and a failover may use another server meanwhile. Default false: a mistake in the options.
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
 * The caller would wait until its `wait` ends, whatever the holders do.
 *
 * - With a `cycle`: callers wait for each other, and this one was refused so that the others go on. For clients it is as busy as a {@link LockBusyError}.
 * - Without one, misuse: the caller would wait for itself (re-entry that was refused, in another mode, or with a larger weight), a database has found a
 *   deadlock, or, in a test with `detectDeadlocks`, the application nests locks in two orders.
 */
export class LockDeadlockError extends LockError {
  readonly code = 'LOCK_DEADLOCK';
  /** How long the caller waited, in ms; 0 for misuse. */
  readonly waited: number;
  /**
   * The callers that wait for each other, beginning with the one that gets the error; `null` for misuse. Not enumerable and not part of the JSON form. The
   * message names keys and instances of others, so an answer to a client must not show it; those of this package do not.
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

/** Too many: the limit of 10,000 waiters per key or of a backend's pool is reached. */
export class LockCapacityError extends LockError {
  readonly code = 'LOCK_CAPACITY';
}

/**
 * Conflict: the row is not as it was when the entity was read. Somebody has written or deleted it since, and nothing of
 * this write was done. Read it again and redo the work: `RetryOnConflict` of `nestjs-distributed-lock/typeorm`.
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

/** The message, with what it quotes of the cause as the safe cause has it. */
function quoting(message: string, cause: unknown, safe: unknown): string {
  const [quoted, shown] = [cause, safe].map((error) => (isError(error) ? error.message : error));
  if (typeof quoted !== 'string' || typeof shown !== 'string' || quoted === '' || quoted === shown) return message;
  return message.replaceAll(quoted, () => shown);
}
