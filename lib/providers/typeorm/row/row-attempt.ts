import {
  type AcquireRequest,
  type Grant,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../../api/lock-provider.js';
import { type Clock } from '../../../api/clock.js';
import { pause } from '../../../core/toolkit/pause.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import { LockCapacityError, LockConfigError } from '../../../api/errors.js';
import { firstRow } from '../answer.js';
import { FAMILIES } from '../family.js';
import type { Session } from '../session.js';
import type { LockAttempt } from '../sql-lock-provider.js';
import { offerTransaction, withdrawTransaction } from './entity-manager-of.js';
import { LentTransaction, UncommittedError } from './lent-transaction.js';
import type { RowLocks } from './row-lock-provider.js';

// How long before a row is asked for again, in ms: between half of it and all of it.
const PAUSE = 60;

/** One attempt to lock one row, from its connection to the end of its transaction. */
export class RowAttempt implements LockAttempt {
  readonly #clock: Clock;
  #session: Session | undefined;
  #grant: Grant | undefined;
  #lent: LentTransaction | undefined;
  #isOver = false;
  #isWaiting = false;

  constructor(
    private readonly locks: RowLocks,
    private readonly holder: string,
    private readonly row: string,
    /** The fencing counter, or undefined where no tokens are wanted. */
    private readonly counter: string | undefined,
  ) {
    this.#clock = locks.database.context.clock;
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    if (this.#grant && !this.#hasEnded()) return { ...this.#grant, validUntil: this.#validUntil() };
    const { counter } = this;
    const { counters, database } = this.locks;
    try {
      const session = await this.#lockRow(request);
      if (!session) return 'busy';
      const token = counter === undefined ? null : await counters.next(counter);
      // A holder that was frozen until its guard freed the row could otherwise have the larger token of two. And after a wait
      // the statement that the server has answered is as old as the wait: validity has to begin again.
      if (token !== null || this.#isWaiting) await session.run(database.server.dialect.heartbeat);
      return this.#hold(session, request, token);
    } catch (error) {
      this.#session?.destroy();
      // The caller has left, and the end of our own connection is no failure.
      if (this.#hasEnded() && this.#isWaiting) return 'busy';
      throw error;
    }
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
    } else if (this.#clock.now() - session.answered > this.locks.settings.guard / 3) return 'unknown';
    return { validUntil: this.#validUntil() };
  }

  /** Ends the transaction: commits what was written in it, unless `failed`. */
  async release({ failed }: ReleaseManner): Promise<ReleaseOutcome> {
    const session = this.#session;
    if (!this.#grant || this.#hasEnded() || !session) {
      this.#abandon();
      return 'lost';
    }
    this.#isOver = true;
    // From here on others may use it.
    this.#session = undefined;
    withdrawTransaction(this.holder);
    if (session.isLost()) {
      session.destroy();
      return 'lost';
    }
    try {
      if (this.#lent && !failed) await this.#lent.commit(this.locks.settings.commitTimeout);
      // Nothing was written, or nothing is to last. Postgres spares the disk for a ROLLBACK, not for a COMMIT that only frees locks.
      else await (this.#lent ?? session).rollback();
      session.giveBack();
      return 'released';
    } catch (error) {
      const isFree = failed && session.isLost();
      const { written, cause } = error instanceof UncommittedError ? error : {};
      if (written === 'replaced') {
        // Of what was written before, some may be saved, and somebody else may have had the lock since. Nor is it known what else the
        // application has left on the connection, such as locks on tables.
        session.destroy();
        return 'lost';
      }
      // It can be used again if it was rolled back instead.
      session.giveBack();
      if (written) return { written, cause };
      return isFree ? 'released' : 'unknown';
    }
  }

  /** Resolves to a session whose transaction has locked the row, or to nothing where it is busy. */
  async #lockRow(request: AcquireRequest): Promise<Session | undefined> {
    const { table, sessions, server, context } = this.locks.database;
    const { dialect } = server;
    const isRow = `WHERE name = ${FAMILIES[this.locks.settings.database].value(1)}`;
    const lock = `SELECT ${dialect.isReadOnly} AS read_only FROM ${table.name} ${isRow} ${dialect.forMode(request.mode)}`;
    for (let made = 0; ;) {
      const session = await this.#takeSession(request);
      if (!session) return undefined;
      if (this.#isLocked(await session.beginWith(`${lock} SKIP LOCKED`, this.row))) return session;
      const exists = firstRow(await session.run(`SELECT 1 FROM ${table.name} ${isRow}`, [this.row])) !== undefined;
      if (exists && request.wait > 0 && !this.#hasEnded()) {
        if (!this.#isWaiting) context.emit({ type: 'waiting', holder: this.holder });
        this.#isWaiting = true;
        if (sessions.mayWait(request) && this.#isLocked(await this.#wait(session, lock, request.signal)))
          return session;
      }
      await session.rollback();
      this.#session = undefined;
      session.giveBack();
      if (this.#hasEnded() || (exists && request.wait <= 0)) return undefined;
      if (!exists) {
        // Never locked before, or purged meanwhile.
        if (made === 2) throw this.#vanished(request.key);
        if (await table.createRow(this.row)) {
          made += 1;
          continue;
        }
        if (request.wait <= 0) return undefined;
      }
      // Others need the connection that this caller would wait on, or a transaction prevents that the row is made.
      await pause(this.#clock, PAUSE * (0.5 + context.random.fraction() / 2), request.signal);
      if (request.signal.aborted) return undefined;
    }
  }

  async #takeSession(request: AcquireRequest): Promise<Session | undefined> {
    try {
      this.#session = await this.locks.database.sessions.take(request);
      return this.#session;
    } catch (error) {
      // The last that was seen of the row is that somebody else has it.
      if (this.#isWaiting && error instanceof LockCapacityError) return undefined;
      throw error;
    }
  }

  #isLocked(answer: unknown): boolean {
    const row = firstRow(answer);
    const { settings, database } = this.locks;
    if (row && isTrue(row['read_only']) && !settings.allowUnsafeTopology) {
      const { name: provider } = database.context;
      throw new LockConfigError(
        `Lock provider "${provider}": this server has become read-only, so others may lock on the writer. Give the provider the address of the writer.`,
        { provider },
      );
    }
    return row !== undefined;
  }

  async #wait(session: Session, lock: string, signal: AbortSignal): Promise<unknown> {
    const leave = () => {
      this.#abandon();
    };
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    try {
      return await session.send(lock, [this.row]);
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  #hold(session: Session, { key, mode }: AcquireRequest, fencingToken: bigint | null): Grant | 'busy' {
    const { settings, database } = this.locks;
    const { context } = database;
    const { holder } = this;
    if (this.#hasEnded() || session.isLost()) {
      session.destroy();
      if (this.#hasEnded()) return 'busy';
      throw new Error('The connection was lost.');
    }
    session.onLost = (cause) => {
      context.emit({ type: 'lost', holder, cause });
    };
    this.#grant = { key, holder, mode, fencingToken, validUntil: this.#validUntil(), lease: settings.guard };
    if (mode === 'exclusive') offerTransaction(holder, () => (this.#lent ??= this.#lend(session)).manager);
    return this.#grant;
  }

  #lend(session: Session): LentTransaction {
    const { settings, database } = this.locks;
    const { context } = database;
    return new LentTransaction(session, settings.dataSource, this.holder, (error) => {
      context.logger.error(
        `A subscriber failed at the end of a transaction of lock provider "${context.name}": ${String(error)}`,
      );
    });
  }

  /** Ends it silently, in whatever state it is. */
  #abandon(): void {
    this.#isOver = true;
    withdrawTransaction(this.holder);
    // Otherwise a statement is in flight that is answered soon, and acquire() gives the session back.
    if (this.#grant || this.#isWaiting) this.#session?.destroy();
  }

  #vanished(key: string): LockConfigError {
    const { name: provider } = this.locks.database.context;
    return new LockConfigError(
      `Lock "${key}" of provider "${provider}" was not acquired. Its row was made twice and cannot be seen: a policy of row-level security or a trigger hides or deletes it. Exempt the account of the locks from it.`,
      { key, provider },
    );
  }

  // A method, because the answer changes while something is awaited.
  #hasEnded(): boolean {
    return this.#isOver;
  }

  #validUntil(): number {
    return validUntil(this.#session?.answered ?? -Infinity, this.locks.settings.guard);
  }
}

/** What databases answer for true. */
function isTrue(value: unknown): boolean {
  return value === true || Number(value) === 1;
}
