import type { AcquireRequest } from '../../../api/lock-provider.js';
import type { LockMode } from '../../../api/lock-mode.js';
import { Batches } from '../connection/batches.js';
import { isTrue } from '../connection/answer.js';
import type { AdvisoryStatements, OfMany } from '../connection/dialect.js';
import { faultOf, SilentServerError } from '../connection/failure.js';
import type { Session } from '../connection/session.js';
import type { ConnectionRequest, Slots } from '../connection/sessions.js';

/** A request that has, or asks for, a lock on a session. */
export interface SessionUser {
  /** The session has ended, and its locks with it. */
  onSessionLost(cause: unknown): void;
}

/** A name that this session has, or asks for. */
interface Name {
  readonly mode: LockMode;
  holders: number;
  /** While it is asked for, or freed by its last holder. */
  changes: Promise<unknown> | undefined;
}

/**
 * One session and the locks on it. A session never blocks itself: what it has it would get again. So one name has one holder
 * here, or readers, and this class knows which.
 *
 * The session answers one statement at a time. Locks that are asked for meanwhile go together with the next one.
 */
export class HoldingSession {
  /** Locks that the session may have for no request: one that it waits for, or could not free. Such a session is not used again. */
  readonly #leftOver = new Set<string>();
  readonly #names = new Map<string, Name>();
  /** How often each has entered: one asks again while the lock is freed that it was granted too late. */
  readonly #users = new Map<SessionUser, number>();
  readonly #batches = new Map<OfMany, Batches<string, boolean>>();

  constructor(
    readonly session: Session,
    private readonly statements: AdvisoryStatements,
    /** Called when no user is left: the session is not used again. */
    private readonly onEmpty: () => void,
    /** Of the names on it; none where they are not limited. */
    private readonly places?: Slots,
  ) {
    session.onLost = (cause) => {
      this.#forgetAll();
      for (const user of [...this.#users.keys()]) user.onSessionLost(cause);
    };
  }

  /** Whether the session may have a lock for no request. Only the end of the session frees such a lock. */
  get mayHaveLock(): boolean {
    return this.#leftOver.size > 0;
  }

  /** Whether locks may be asked for on it. */
  get isUsable(): boolean {
    return !this.mayHaveLock && !this.session.isLost() && !this.session.isSilent;
  }

  /** For how many ms the server has been silent while the session may have this lock for no request: one that it asks for, or could not free. */
  unansweredFor(name: string): number {
    const mayHave = this.#leftOver.has(name) || this.#names.get(name)?.changes !== undefined;
    return mayHave && this.session.isSilent ? this.session.overdueFor : 0;
  }

  enter(user: SessionUser): void {
    this.#users.set(user, (this.#users.get(user) ?? 0) + 1);
  }

  /** The last user gives the session back. */
  leave(user: SessionUser): void {
    const times = this.#users.get(user) ?? 0;
    if (times > 1) this.#users.set(user, times - 1);
    else if (this.#users.delete(user) && this.#users.size === 0) {
      this.#forgetAll();
      this.onEmpty();
      if (this.mayHaveLock) this.session.destroy();
      else this.session.giveBack();
    }
  }

  /** Takes the lock if it is free. @throws LockCapacityError when there is no place for it in the time of the request */
  async tryLock(name: string, mode: LockMode, request: ConnectionRequest = { wait: 0 }): Promise<boolean> {
    for (;;) {
      const known = this.#names.get(name);
      if (!known) {
        if (this.places) await this.places.take(request);
        // Others may have asked for it meanwhile.
        if (!this.#names.has(name)) {
          return this.#ask(name, { mode, holders: 0, changes: undefined }, this.statements.tryLock(mode));
        }
        this.places?.free();
      } else if (known.changes) await known.changes.catch(() => undefined);
      else if (mode === 'exclusive' || known.mode === 'exclusive') return false;
      else return this.#ask(name, known, this.statements.joinReaders);
    }
  }

  /** Takes the lock as soon as it is free. For a session that has nothing: one that has a lock never waits. A waiter leaves by ending it. */
  async awaitLock(name: string, request: AcquireRequest): Promise<true> {
    const { mode } = request;
    const { session, statements } = this;
    // Until it has the lock. Otherwise the limits of a wait stay, too.
    this.#leftOver.add(name);
    await session.beginWait();
    for (;;) {
      const answer = await session.runSlice(request.since, (limits) =>
        statements.awaitLock(name, mode, limits, session.facts),
      );
      if (answer !== undefined && doneOf(answer)[0]) break;
      // An operator has cancelled it. If that was in the moment of the grant, the session has the lock nevertheless (measured on Postgres 15:
      // 3 of 3 after 4 to 12 tries).
      if (answer === undefined) await session.run(statements.unlockAll);
    }
    await session.endWait();
    this.#leftOver.delete(name);
    this.#names.set(name, { mode, holders: 1, changes: undefined });
    return true;
  }

  /** Answers whether the session had the lock. */
  async unlock(name: string, mode: LockMode): Promise<boolean> {
    const known = this.#names.get(name);
    const unlocks = this.#together(this.statements.unlock(mode));
    try {
      // While a reader asks to join, the name stays: a session never blocks itself, so a writer would be granted beside that reader.
      if (!known || (known.holders -= 1) > 0 || known.changes) return await unlocks.add(name);
      // Asked for before this is sent, the name would never become free, and a waiter of another process would not get it.
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
      return await unlocks.add(name);
    } catch (error) {
      // An operator has cancelled it, before or after the server has freed the lock. Nobody else of this session has it.
      if (faultOf(error) !== 'busy') throw error;
      await unlocks.add(name);
      return true;
    } finally {
      this.#forget(name);
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

  /** The end of the session frees them at the server. */
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
      // What frees locks has nothing to undo, and asks nothing.
      return doneOf(await session.run(...operation(names, undo && session.facts.isReadOnly)));
    } catch (error) {
      if (undo) void this.#undo(error, names, entries, undo);
      throw error;
    }
  }

  /** Frees what their callers do not want any more: locks that are granted late, or by a statement that failed. */
  async #undo(
    failure: unknown,
    names: readonly string[],
    entries: readonly (Name | undefined)[],
    undo: OfMany,
  ): Promise<void> {
    let locked: readonly string[];
    try {
      if (!(failure instanceof SilentServerError)) throw failure;
      const done = doneOf(await failure.answer);
      // The server counts holds, so those of others stay.
      locked = names.filter((_, index) => done[index]);
    } catch {
      // Those before the one that failed may have been taken, and so may the last one, if it was cancelled in the moment of the grant. What
      // others of this session hold, or have asked for since, is counted once too often then, or is not: that ends with the session.
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
  }
}

/** Of each lock, whether the statement succeeded. @throws Error when the server does not know (GET_LOCK: NULL) */
function doneOf(answer: unknown): readonly boolean[] {
  return (answer as readonly Readonly<Record<'done', unknown>>[]).map(({ done }) => {
    if (done === null || done === undefined) throw new Error('The server does not know whether the lock is free.');
    return isTrue(done);
  });
}
