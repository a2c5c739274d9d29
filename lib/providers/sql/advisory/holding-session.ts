import type { LockMode } from '../../../api/lock-options.js';
import { type Session, SilentServerError } from '../session.js';
import { type AdvisoryStatements, isDone } from './advisory-statements.js';

/** An attempt that has, or asks for, a lock on a session. */
export interface SessionUser {
  /** The session has ended, and its locks with it. */
  onSessionLost(cause: unknown): void;
}

/** A name that this session has, or asks for. */
interface Name {
  readonly mode: LockMode;
  holders: number;
  /** While it is asked for; never rejects. */
  asked: Promise<unknown> | undefined;
}

/**
 * One session and the locks on it. A session never blocks itself: what it has it would get again. So one name has one holder
 * here, or readers, and this class knows which.
 */
export class HoldingSession {
  /** A lock that no attempt has any more could not be freed: the session has to end. */
  mayHaveLock = false;
  readonly #names = new Map<string, Name>();
  readonly #users = new Set<SessionUser>();

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
      if (!known) return this.#ask(name, { mode, holders: 0, asked: undefined }, this.statements.tryLock(mode));
      if (known.asked) await known.asked;
      else if (mode === 'exclusive' || known.mode === 'exclusive') return false;
      else return this.#ask(name, known, this.statements.joinReaders);
    }
  }

  /** Takes the lock as soon as it is free. For a session that has nothing: one that has a lock never waits. */
  async awaitLock(name: string, mode: LockMode): Promise<true> {
    // Not only the end of the time makes a server answer 0: a step of its wall clock does too (measured on MariaDB 10.11: 20 s were
    // over after 1 s). A waiter leaves by ending the session.
    while (!isDone(await this.session.send(this.statements.awaitLock(mode), [name])));
    this.#names.set(name, { mode, holders: 1, asked: undefined });
    return true;
  }

  /** Answers whether the session had the lock. */
  async unlock(name: string, mode: LockMode): Promise<boolean> {
    const known = this.#names.get(name);
    // From here on the name may be asked for again: that statement follows this one on the same connection. While a reader asks to
    // join, the name stays: a session never blocks itself, so a writer would be granted beside that reader.
    if (known && (known.holders -= 1) <= 0 && !known.asked) this.#names.delete(name);
    try {
      return isDone(await this.session.run(this.statements.unlock(mode), [name]));
    } catch (error) {
      this.mayHaveLock = true;
      throw error;
    }
  }

  async #ask(name: string, entry: Name, sql: string): Promise<boolean> {
    const { session } = this;
    const answer = session.send(sql, [name]).then(isDone);
    const inTime = session.inTime(answer);
    entry.asked = inTime.catch(() => undefined);
    this.#names.set(name, entry);
    let isLocked = false;
    try {
      isLocked = await inTime;
      return isLocked;
    } catch (error) {
      if (error instanceof SilentServerError) this.#unlockLate(answer, name, entry.mode);
      throw error;
    } finally {
      entry.asked = undefined;
      if (isLocked) entry.holders += 1;
      if (entry.holders === 0) this.#names.delete(name);
    }
  }

  /** A lock that is granted after its caller has given up is freed. The server counts holds, so those of others stay. */
  #unlockLate(answer: Promise<boolean>, name: string, mode: LockMode): void {
    answer
      .then((isLocked) => isLocked && this.session.run(this.statements.unlock(mode), [name]))
      .catch(() => undefined);
  }
}
