import type { AcquireRequest } from '../../../api/lock-provider.js';
import type { LockMode } from '../../../api/lock-mode.js';
import { Batches } from '../connection/batches.js';
import { isTrue } from '../connection/answer.js';
import type { AdvisoryStatements, OfMany } from '../connection/dialect.js';
import { faultOf, SilentServerError } from '../connection/failure.js';
import type { Session } from '../connection/session.js';
import type { ConnectionRequest, Slots } from '../connection/sessions.js';

/** A request that uses a session. */
export interface SessionUser {
  /** The session and its locks are gone. */
  onSessionLost(cause: unknown): void;
}

/** A lock that this session holds or is trying to acquire. */
interface Name {
  readonly mode: LockMode;
  holders: number;
  /** A pending lock attempt, or the last holder's pending unlock. */
  changes: Promise<unknown> | undefined;
}

/**
 * A session and the locks on it. A session never conflicts with itself: the server grants a session its own locks
 * again. So this class ensures that each name has either one holder or several readers.
 *
 * A session runs one statement at a time. Lock requests made in the meantime are sent together in the next statement.
 */
export class HoldingSession {
  /**
   * Locks that the session may hold though no request does, because it is waiting for them or failed to free them. Such
   * a session is not reused.
   */
  readonly #leftOver = new Set<string>();
  /** The names of failed statements, while it is unknown whether they have locked them, or until they are unlocked. */
  readonly #undone = new Set<readonly string[]>();
  readonly #names = new Map<string, Name>();
  /** How many times each user has entered. A user may enter again while a lock granted too late is being freed. */
  readonly #users = new Map<SessionUser, number>();
  readonly #batches = new Map<OfMany, Batches<string, boolean>>();

  constructor(
    readonly session: Session,
    private readonly statements: AdvisoryStatements,
    /** Called when the last user has left. The session is not used again. */
    private readonly onEmpty: () => void,
    /** Limits the number of locks on the session, if the server does. */
    private readonly places?: Slots,
  ) {
    session.onLost = (cause) => {
      this.#forgetAll();
      for (const user of [...this.#users.keys()]) user.onSessionLost(cause);
    };
  }

  /** Whether the session may hold a lock that no request holds. Only ending the session frees such a lock. */
  get mayHaveLock(): boolean {
    return this.#leftOver.size > 0;
  }

  /** Whether locks may be requested on the session. */
  get isUsable(): boolean {
    return !this.mayHaveLock && !this.session.isLost() && !this.session.isSilent;
  }

  /** Whether a failed attempt of this process may be what keeps the lock from others. */
  blocks(name: string): boolean {
    if ([...this.#undone].some((names) => names.includes(name))) return true;
    const mayHave = this.#leftOver.has(name) || this.#names.get(name)?.changes !== undefined;
    return mayHave && this.session.isSilent;
  }

  /** Whether nothing uses the session anymore, and the server has ended it if it may have had locks. */
  get isGone(): boolean {
    return this.#users.size === 0 && !this.session.isEnding;
  }

  enter(user: SessionUser): void {
    this.#users.set(user, (this.#users.get(user) ?? 0) + 1);
  }

  /** The last user to leave returns the session. */
  leave(user: SessionUser): void {
    const times = this.#users.get(user) ?? 0;
    if (times > 1) this.#users.set(user, times - 1);
    else if (this.#users.delete(user) && this.#users.size === 0) {
      this.#forgetAll();
      if (this.mayHaveLock) this.session.destroy();
      else this.session.giveBack();
      this.onEmpty();
    }
  }

  /**
   * Acquires the lock if it is free. @throws LockCapacityError if the server's lock table still has no room for it when
   * the wait ends
   */
  async tryLock(name: string, mode: LockMode, request: ConnectionRequest = { wait: 0 }): Promise<boolean> {
    for (;;) {
      const known = this.#names.get(name);
      if (!known) {
        if (this.places) await this.places.take(request);
        // Another request may have added the name in the meantime.
        if (!this.#names.has(name)) {
          return this.#ask(name, { mode, holders: 0, changes: undefined }, this.statements.tryLock(mode));
        }
        this.places?.free();
      } else if (known.changes) await known.changes.catch(() => undefined);
      else if (mode === 'exclusive' || known.mode === 'exclusive') return false;
      else return this.#ask(name, known, this.statements.joinReaders);
    }
  }

  /**
   * Waits until the lock is acquired. Only for a session without locks: one with locks must never wait. Ending the
   * session ends the wait.
   */
  async awaitLock(name: string, request: AcquireRequest): Promise<true> {
    const { mode } = request;
    const { session, statements } = this;
    // Treat the lock as left over until it's acquired. If the wait fails, the session also keeps its time limits.
    this.#leftOver.add(name);
    await session.beginWait();
    for (;;) {
      const answer = await session.runSlice(request.since, (limits) =>
        statements.awaitLock(name, mode, limits, session.facts),
      );
      if (answer !== undefined && doneOf(answer)[0]) break;
      // An operator canceled the statement. If the lock was granted at the same moment, the session holds it anyway
      // (measured on Postgres 15: in 3 of 3 tests, after 4 to 12 tries).
      if (answer === undefined) await session.run(statements.unlockAll);
    }
    await session.endWait();
    this.#leftOver.delete(name);
    this.#names.set(name, { mode, holders: 1, changes: undefined });
    return true;
  }

  /** Frees the lock. Returns whether the session held it. */
  async unlock(name: string, mode: LockMode): Promise<boolean> {
    const known = this.#names.get(name);
    const unlocks = this.#together(this.statements.unlock(mode));
    try {
      // Keep the name while a reader is joining. The server wouldn't block a writer on the same session, so the writer
      // would run alongside that reader.
      if (!known || (known.holders -= 1) > 0 || known.changes) return await unlocks.add(name);
      // Requests wait for this change. Otherwise, those that arrive before the unlock is sent would keep the name from
      // other processes forever.
      const unlocked = this.#unlockLast(name, unlocks);
      known.changes = unlocked;
      return await unlocked;
    } catch (error) {
      this.#leftOver.add(name);
      throw error;
    }
  }

  async #unlockLast(name: string, unlocks: Batches<string, boolean>): Promise<boolean> {
    try {
      let wasLocked: boolean;
      try {
        wasLocked = await unlocks.add(name);
      } catch (error) {
        // An operator canceled the statement, before or after the server freed the lock. No other request of this
        // session holds it.
        if (faultOf(error) !== 'busy') throw error;
        await unlocks.add(name);
        wasLocked = true;
      }
      if (this.#leftOver.has(name)) await this.#unlockLeftOver(name, unlocks);
      return wasLocked;
    } finally {
      this.#forget(name);
    }
  }

  /** A canceled statement may have left the server's count of readers too high, which would keep writers out. */
  async #unlockLeftOver(name: string, unlocks: Batches<string, boolean>): Promise<void> {
    try {
      while (await unlocks.add(name));
    } catch {
      // The lock ends with the session, which isn't reused.
    }
  }

  async #ask(name: string, entry: Name, operation: OfMany): Promise<boolean> {
    this.#names.set(name, entry);
    const answer = this.#together(operation, this.statements.unlock(entry.mode)).add(name);
    entry.changes = answer;
    try {
      const isLocked = await answer;
      if (isLocked) entry.holders += 1;
      return isLocked;
    } finally {
      entry.changes = undefined;
      if (entry.holders === 0) this.#forget(name);
    }
  }

  #forget(name: string): void {
    if (this.#names.delete(name)) this.places?.free();
  }

  /** Ending the session frees its locks on the server. */
  #forgetAll(): void {
    for (const name of [...this.#names.keys()]) this.#forget(name);
  }

  #together(operation: OfMany, undo?: OfMany): Batches<string, boolean> {
    let batches = this.#batches.get(operation);
    if (!batches) {
      batches = new Batches((names: readonly string[]) => this.#send(operation, names, undo), 1);
      this.#batches.set(operation, batches);
    }
    return batches;
  }

  async #send(operation: OfMany, names: readonly string[], undo?: OfMany): Promise<readonly boolean[]> {
    const { session } = this;
    const entries = names.map((name) => this.#names.get(name));
    try {
      // An unlock can't be undone and doesn't check whether the server is read-only.
      return doneOf(await session.run(...operation(names, undo && session.facts.isReadOnly)));
    } catch (error) {
      if (undo) void this.#undo(error, names, entries, undo);
      throw error;
    }
  }

  /** Frees locks that callers no longer want, because they were granted late or by a failed statement. */
  async #undo(
    failure: unknown,
    names: readonly string[],
    entries: readonly (Name | undefined)[],
    undo: OfMany,
  ): Promise<void> {
    this.#undone.add(names);
    let locked: readonly string[];
    try {
      if (!(failure instanceof SilentServerError)) throw failure;
      const done = doneOf(await failure.answer);
      // The server counts holds, so other requests' holds remain.
      locked = names.filter((_, index) => done[index]);
    } catch {
      // The locks before the failed one may have been acquired, and so may the failed one if it was canceled at that
      // moment. For locks that other requests of this session hold or have requested, the count may then be off by one
      // until the session ends.
      for (const name of names) this.#leftOver.add(name);
      locked = names.filter((name, index) => {
        const entry = this.#names.get(name);
        return !entry || (entry === entries[index] && entry.holders === 0);
      });
    }
    try {
      if (locked.length > 0) await this.session.run(...undo(locked));
    } catch {
      for (const name of locked) this.#leftOver.add(name);
    }
    this.#undone.delete(names);
  }
}

/** For each lock, whether the statement succeeded. @throws Error if the server doesn't know (GET_LOCK: NULL) */
function doneOf(answer: unknown): readonly boolean[] {
  return (answer as readonly Readonly<Record<'done', unknown>>[]).map(({ done }) => {
    if (done === null || done === undefined) throw new Error('The server does not know whether the lock is free.');
    return isTrue(done);
  });
}
