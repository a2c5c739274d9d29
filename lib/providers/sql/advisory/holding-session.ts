import type { LockMode } from '../../../api/lock-mode.js';
import { Batches } from '../connection/batches.js';
import { type Session, SilentServerError } from '../connection/session.js';
import { type AdvisoryStatements, doneOf, type OfMany } from './advisory-statements.js';

/** An attempt that has, or asks for, a lock on a session. */
export interface SessionUser {
  /** The session has ended, and its locks with it. */
  onSessionLost(cause: unknown): void;
}

/** A name that this session has, or asks for. */
interface Name {
  readonly mode: LockMode;
  holders: number;
  /** While it is asked for, or freed by its last holder; never rejects. */
  changes: Promise<unknown> | undefined;
}

/**
 * One session and the locks on it. A session never blocks itself: what it has it would get again. So one name has one holder
 * here, or readers, and this class knows which.
 *
 * It answers one statement at a time. What is asked for meanwhile goes together with the next one.
 */
export class HoldingSession {
  /** A lock that no attempt has any more could not be freed: the session has to end. */
  mayHaveLock = false;
  readonly #names = new Map<string, Name>();
  readonly #users = new Set<SessionUser>();
  readonly #batches = new Map<OfMany, Batches<string, boolean>>();

  constructor(
    readonly session: Session,
    private readonly statements: AdvisoryStatements,
    /** It has no user any more, and is not used again. */
    private readonly onEmpty: () => void,
  ) {
    session.onLost = (cause) => {
      for (const user of [...this.#users]) user.onSessionLost(cause);
    };
  }

  /** Whether locks may be asked for on it. */
  get isUsable(): boolean {
    return !this.mayHaveLock && !this.session.isLost() && !this.session.isSilent;
  }

  enter(user: SessionUser): void {
    this.#users.add(user);
  }

  /** The last user gives the session back. */
  leave(user: SessionUser): void {
    if (!this.#users.delete(user) || this.#users.size > 0) return;
    this.onEmpty();
    if (this.mayHaveLock) this.session.destroy();
    else this.session.giveBack();
  }

  /** Takes the lock if it is free. */
  async tryLock(name: string, mode: LockMode): Promise<boolean> {
    for (;;) {
      const known = this.#names.get(name);
      if (!known) return this.#ask(name, { mode, holders: 0, changes: undefined }, this.statements.tryLock(mode));
      if (known.changes) await known.changes;
      else if (mode === 'exclusive' || known.mode === 'exclusive') return false;
      else return this.#ask(name, known, this.statements.joinReaders);
    }
  }

  /** Takes the lock as soon as it is free. For a session that has nothing: one that has a lock never waits. */
  async awaitLock(name: string, mode: LockMode): Promise<true> {
    // Not only the end of the time makes a server answer 0: a step of its wall clock does too (measured on MariaDB 10.11: 20 s were
    // over after 1 s). A waiter leaves by ending the session.
    while (!doneOf(await this.session.send(this.statements.awaitLock(mode), [name]))[0]);
    this.#names.set(name, { mode, holders: 1, changes: undefined });
    return true;
  }

  /** Answers whether the session had the lock. */
  async unlock(name: string, mode: LockMode): Promise<boolean> {
    const known = this.#names.get(name);
    const unlocked = this.#together(this.statements.unlock(mode)).add(name);
    // While a reader asks to join, the name stays: a session never blocks itself, so a writer would be granted beside that reader.
    if (known && (known.holders -= 1) <= 0 && !known.changes) {
      // Asked for before this is sent, the name would never become free, and a waiter of another process would not get it.
      known.changes = unlocked.catch(() => undefined).finally(() => this.#names.delete(name));
    }
    try {
      return await unlocked;
    } catch (error) {
      this.mayHaveLock = true;
      throw error;
    }
  }

  async #ask(name: string, entry: Name, operation: OfMany): Promise<boolean> {
    const answer = this.#together(operation, this.statements.unlock(entry.mode)).add(name);
    entry.changes = answer.catch(() => undefined);
    this.#names.set(name, entry);
    let isLocked = false;
    try {
      isLocked = await answer;
      return isLocked;
    } finally {
      entry.changes = undefined;
      if (isLocked) entry.holders += 1;
      if (entry.holders === 0) this.#names.delete(name);
    }
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
    const answer = session.send(...operation(names)).then(doneOf);
    // Those before the one that failed may have been taken.
    answer.catch(() => (this.mayHaveLock ||= names.length > 1));
    try {
      return await session.inTime(answer);
    } catch (error) {
      if (undo && error instanceof SilentServerError) this.#undoLate(answer, names, undo);
      throw error;
    }
  }

  /** Locks that are granted after their callers have given up are freed. The server counts holds, so those of others stay. */
  #undoLate(answer: Promise<readonly boolean[]>, names: readonly string[], undo: OfMany): void {
    answer
      .then(async (done) => {
        const locked = names.filter((_, index) => done[index]);
        if (locked.length > 0) await this.session.run(...undo(locked));
      })
      .catch(() => undefined);
  }
}
