import {
  type AcquireRequest,
  type Clock,
  type Grant,
  type ReleaseOutcome,
  type RenewOutcome,
  validUntil,
} from '../../../engine/lock-provider.js';
import { type Dialect, firstRow } from '../dialect.js';
import type { LockTable } from '../lock-table.js';
import type { LockAttempt } from '../session-locks.js';
import type { Session } from '../session.js';
import type { Sessions } from '../sessions.js';
import { offerTransaction, withdrawTransaction } from './entity-manager-of.js';
import { type LentTransaction, UncommittedError } from './lent-transaction.js';

/** What an attempt needs of its provider. */
export interface RowLocking {
  readonly clock: Clock;
  readonly dialect: Dialect;
  readonly table: LockTable;
  /** The session guard, in ms. */
  readonly guard: number;
  readonly sessions: Pick<Sessions, 'take'>;
  /** The name of the fencing counter, or undefined where no tokens are wanted. */
  counterOf(key: string): string | undefined;
  /** Before a row is asked for again. */
  pause(signal: AbortSignal): Promise<void>;
  onWaiting(holder: string): void;
  onLost(holder: string, cause: unknown): void;
  /** Hands the transaction of a lock to the application. */
  lend(session: Session, holder: string): LentTransaction;
  /** How long the server may take for a COMMIT, in ms. */
  readonly commitPatience: number;
}

/** One attempt to lock one row, from its connection to the end of its transaction. */
export class RowAttempt implements LockAttempt {
  #session: Session | undefined;
  #grant: Grant | undefined;
  #lent: LentTransaction | undefined;
  #isOver = false;
  #isWaiting = false;

  constructor(
    private readonly locking: RowLocking,
    private readonly request: AcquireRequest,
    private readonly row: string,
  ) {}

  async acquire(): Promise<Grant | 'busy'> {
    const { locking, request } = this;
    const session = await locking.sessions.take(request);
    this.#session = session;
    try {
      if (!(await this.#lockRow(session))) {
        await session.rollback();
        session.giveBack();
        return 'busy';
      }
      const counter = locking.counterOf(request.key);
      const token = counter === undefined ? null : await locking.table.nextToken(counter);
      // A holder that was frozen until its guard freed the row could otherwise have the larger token of two. And after a wait
      // the statement that the server has answered is as old as the wait: validity has to begin anew.
      if (token !== null || this.#isWaiting) await session.run(locking.dialect.heartbeat);
      return this.#hold(session, token);
    } catch (error) {
      session.destroy();
      // We have left, and the end of our own connection is no failure.
      if (this.#hasEnded() && this.#isWaiting) return 'busy';
      throw error;
    }
  }

  get grant(): Grant | undefined {
    const until = this.#validUntil();
    return this.#grant && !this.#hasEnded() ? { ...this.#grant, validUntil: until } : undefined;
  }

  async renew(): Promise<RenewOutcome> {
    const session = this.#session;
    if (!this.#grant || this.#hasEnded() || !session || session.isLost()) return 'lost';
    // Behind a statement of the application a heartbeat would only queue. While that runs the guard does not; but if its
    // answer is on a wire that is cut, the server may have finished it long ago, so it extends nothing before it is answered.
    if (session.inFlight === 0 || session.isBeating) {
      try {
        await session.heartbeat();
      } catch {
        return session.isLost() ? 'lost' : 'unknown';
      }
    } else if (this.locking.clock.now() - session.answered > this.locking.guard / 3) return 'unknown';
    return { validUntil: this.#validUntil() };
  }

  /** Ends the transaction: commits what was written in it, unless `failed`. */
  async release(failed: boolean): Promise<ReleaseOutcome> {
    const session = this.#session;
    if (!this.#grant || this.#hasEnded() || !session) {
      this.abandon();
      return 'lost';
    }
    this.#isOver = true;
    withdrawTransaction(this.request.holder);
    if (session.isLost()) {
      session.destroy();
      return 'lost';
    }
    try {
      if (this.#lent && !failed) await this.#lent.commit(this.locking.commitPatience);
      // Nothing was written, or nothing is to last. Postgres spares the disk for a ROLLBACK, not for a COMMIT that only frees locks.
      else await (this.#lent ?? session).rollback();
      session.giveBack();
      return 'released';
    } catch (error) {
      const isFree = failed && session.isLost();
      // Goes back to the pool if it was rolled back instead.
      session.giveBack();
      if (error instanceof UncommittedError) {
        const { written, cause } = error;
        // Of what was written before, some may be saved, and somebody else may have had the lock since.
        return written === 'replaced' ? 'lost' : { written, cause };
      }
      return isFree ? 'released' : 'unknown';
    }
  }

  /** Ends it without a word, wherever it stands. */
  abandon(): void {
    this.#isOver = true;
    withdrawTransaction(this.request.holder);
    if (this.#grant || this.#isWaiting) this.#session?.destroy();
  }

  /** Answers whether the row is locked by the transaction of the session. */
  async #lockRow(session: Session): Promise<boolean> {
    const { locking, request, row } = this;
    const { dialect } = locking;
    let wasMade = false;
    for (;;) {
      await session.begin();
      if (firstRow(await session.run(dialect.tryLock(request.mode), [row]))) return true;
      const exists = firstRow(await session.run(dialect.findRow, [row])) !== undefined;
      if (this.#hasEnded() || (exists && request.wait <= 0)) return false;
      if (exists && (await this.#queue(session))) return true;
      if (this.#hasEnded()) return false;
      // The row is missing: never locked before, or purged meanwhile.
      await session.rollback();
      const isMade = await locking.table.createRow(row);
      if (isMade && !wasMade) {
        wasMade = true;
        continue;
      }
      // Made and missing again (a trigger, a policy, a purge): at once it would be asked for thousands of times a second.
      if (request.wait <= 0 || request.signal.aborted) return false;
      await locking.pause(request.signal);
    }
  }

  async #queue(session: Session): Promise<boolean> {
    const { locking, request, row } = this;
    // Made when it is read, and not for nothing.
    const { signal } = request;
    const leave = () => {
      this.abandon();
    };
    this.#isWaiting = true;
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    locking.onWaiting(request.holder);
    try {
      return firstRow(await session.send(locking.dialect.awaitLock(request.mode), [row])) !== undefined;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  #hold(session: Session, fencingToken: bigint | null): Grant | 'busy' {
    const { locking, request } = this;
    if (this.#hasEnded() || session.isLost()) {
      session.destroy();
      if (this.#hasEnded()) return 'busy';
      throw new Error('The connection was lost.');
    }
    const { key, holder, mode } = request;
    session.onLost = (cause) => {
      locking.onLost(holder, cause);
    };
    this.#grant = { key, holder, mode, fencingToken, validUntil: this.#validUntil(), lease: locking.guard };
    if (mode === 'exclusive') offerTransaction(holder, () => (this.#lent ??= locking.lend(session, holder)).manager);
    return this.#grant;
  }

  // A method, because the answer changes while something is awaited.
  #hasEnded(): boolean {
    return this.#isOver;
  }

  #validUntil(): number {
    return validUntil(this.#session?.answered ?? -Infinity, this.locking.guard);
  }
}
