import type {
  AcquireRequest,
  BackendContext,
  Grant,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../api/lock-provider.js';
import { withAbort } from '../../../core/toolkit/abort-listeners.js';
import { LockCapacityError, LockConfigError } from '../../../api/errors.js';
import { firstRow } from '../connection/answer.js';
import { pauseBeforeRetry } from '../connection/failure.js';
import { counterNameOf, rowNameOf } from '../table/lock-name.js';
import type { Session } from '../connection/session.js';
import { type Database, heldIn, type RequestState, type SqlRequest } from '../sql-backend.js';
import { lenders, type LendTransaction, type LentTransaction } from './lent-transaction.js';

// If a slice ends sooner than this, in ms, it didn't wait.
const TOO_EARLY = 50;

interface HeldRow {
  readonly session: Session;
  readonly grant: Grant;
  lent?: LentTransaction;
}

/** A request to lock one row, from taking a connection to ending the transaction. */
export class RowRequest implements SqlRequest {
  readonly #row: string;
  /** The name of the fencing counter; undefined without fencing. */
  readonly #counter: string | undefined;
  #state: RequestState<HeldRow> = 'asking';
  /** The session on which the request tries to lock, waits for, or holds the row. */
  #session: Session | undefined;
  /** The sessions of failed attempts, which may still have locked the row. */
  #failed: readonly Session[] = [];
  /** Whether the row was busy. */
  #isWaiting = false;

  constructor(
    private readonly context: BackendContext,
    private readonly database: Database,
    private readonly lend: LendTransaction,
    private readonly request: AcquireRequest,
  ) {
    this.#row = rowNameOf(context.namespace, request.key);
    this.#counter = database.settings.fencing ? counterNameOf(context.namespace, request.key) : undefined;
  }

  get unansweredFor(): number {
    return Math.max(this.#session?.overdueFor ?? 0, ...this.#stillEnding.map(({ overdueFor }) => overdueFor));
  }

  async acquire(): Promise<Grant | 'busy'> {
    const held = heldIn(this.#state);
    if (held) return { ...held.grant, validUntil: held.session.validUntil };
    try {
      const session = await this.#lockRow();
      if (!session) return this.#endAsBusy();
      if (this.#isWaiting) await session.endWait();
      const token = this.#counter === undefined ? null : await this.database.table.nextToken(this.#counter);
      // Otherwise, a holder frozen until its guard freed the row could get a higher token than its successor.
      if (token !== null) await session.confirm();
      return this.#hold(session, token);
    } catch (error) {
      if (this.#session) {
        this.#session.destroy();
        this.#failed = [...this.#stillEnding, this.#session];
        this.#session = undefined;
      }
      // If the caller has left, perhaps before the wait on the server began, the end of its connection is not a
      // failure.
      if ((this.#hasEnded() || this.request.signal.aborted) && this.#isWaiting) return 'busy';
      throw error;
    }
  }

  async renew(): Promise<RenewOutcome> {
    return heldIn(this.#state)?.session.renew() ?? 'lost';
  }

  /** Ends the transaction, committing what was written unless `failed`. */
  async release({ failed }: ReleaseOptions): Promise<ReleaseOutcome> {
    const held = this.#end();
    if (!held) return 'lost';
    const { session, lent } = held;
    // Other requests may use the session from now on.
    this.#session = undefined;
    if (session.isLost()) {
      session.destroy();
      return 'lost';
    }
    try {
      let outcome: ReleaseOutcome = 'released';
      if (lent && !failed) outcome = await lent.commit();
      // Nothing was written, or it must be discarded. Postgres writes a COMMIT to disk even if it only frees locks, but
      // not a ROLLBACK.
      else await (lent ?? session).rollback();
      // If another transaction replaced the lock's, earlier writes may already be committed, and another process may
      // have held the lock since. The application may also have left other state on the connection, such as table
      // locks.
      if (outcome === 'lost') session.destroy();
      // The session is only reused if the transaction has ended.
      else session.giveBack();
      return outcome;
    } catch {
      const isFree = failed && session.isLost();
      session.giveBack();
      return isFree ? 'released' : 'unknown';
    }
  }

  /** Resolves to a session whose transaction has locked the row, or to undefined if the row is busy. */
  async #lockRow(): Promise<Session | undefined> {
    const { request, context } = this;
    const { table, sessions, server } = this.database;
    const fromRow = `FROM ${table.name} WHERE name = ${table.family.value(1)}`;
    this.#isWaiting = false;
    for (let made = 0; ;) {
      const session = await this.#takeSession();
      if (!session) return undefined;
      const lock = server.dialect.lockRow(fromRow, request.mode, session.facts.isReadOnly);
      if (await session.beginWith(`${lock} SKIP LOCKED`, this.#row)) return session;
      const exists = firstRow(await session.run(`SELECT 1 ${fromRow}`, [this.#row])) !== undefined;
      if (exists && request.wait > 0 && !this.#hasEnded()) {
        if (!this.#isWaiting) request.waits();
        this.#isWaiting = true;
        await session.rollback();
        if (sessions.slots.mayWait(request) && (await this.#wait(session, lock, request.signal))) return session;
      }
      await session.rollback();
      if (!exists && made === 2) {
        // Throwing also closes the session in case it's at fault.
        throw new LockConfigError(
          `Lock "${request.key}" of provider "${context.name}" was not acquired, because its row was created twice but is not visible. A row-level security policy or a trigger hides or deletes the row. Exempt the locks' account from it.`,
          { key: request.key, provider: context.name },
        );
      }
      this.#session = undefined;
      session.giveBack();
      if (this.#hasEnded()) return undefined;
      // The row was never locked or has since been purged.
      if (!exists && (await table.createRow(this.#row))) {
        made += 1;
        continue;
      }
      if (request.wait <= 0) return undefined;
      // Pause: others need the connection, or another transaction prevents the row's creation.
      await pauseBeforeRetry(context, request.signal);
      if (request.signal.aborted) return undefined;
    }
  }

  async #takeSession(): Promise<Session | undefined> {
    const { request } = this;
    const { key, wait, otherKeysHeld } = request;
    try {
      // Once the row has been busy, the caller keeps waiting for it, with or without a connection.
      const again = this.#isWaiting ? { key, wait, otherKeysHeld, signal: request.signal } : request;
      this.#session = await this.database.sessions.take(again);
      return this.#session;
    } catch (error) {
      // The row was busy when it was last checked.
      if (this.#isWaiting && error instanceof LockCapacityError) return undefined;
      throw error;
    }
  }

  /** Waits in the server's queue. If the server doesn't let it wait, destroys the session and resolves to false. */
  #wait(session: Session, lock: string, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.context;
    return withAbort(signal, this.#end, async () => {
      let begun: number;
      do {
        begun = clock.now();
        if (await session.beginSlice(lock, this.#row, this.request.since)) return true;
        // Even the shortest slice takes longer. The row was deleted, a policy hides it from locking statements, or an
        // operator canceled this wait.
      } while (clock.now() - begun > TOO_EARLY);
      // The session still has the time limits for waiting.
      session.destroy();
      return false;
    });
  }

  /** @throws Error if an earlier attempt may have locked the row: then the holder is unknown */
  #endAsBusy(): 'busy' {
    if (this.#stillEnding.length > 0 && !this.#hasEnded() && !this.request.signal.aborted) {
      throw new Error('An earlier attempt got no response and may still have locked the row.');
    }
    return 'busy';
  }

  get #stillEnding(): readonly Session[] {
    return this.#failed.filter(({ isEnding }) => isEnding);
  }

  #hold(session: Session, fencingToken: bigint | null): Grant | 'busy' {
    const { request } = this;
    if (this.#hasEnded() || session.isLost()) {
      session.destroy();
      if (this.#hasEnded()) return 'busy';
      throw new Error('The connection was lost.');
    }
    session.onLost = (cause) => {
      request.lost(cause);
    };
    const grant = { fencingToken, validUntil: session.validUntil, lease: this.database.settings.sessionGuard };
    const held: HeldRow = { session, grant };
    this.#state = held;
    if (request.mode === 'exclusive') lenders.set(request.id, () => (held.lent ??= this.lend(session, request.id)));
    return grant;
  }

  /** Ends the request, whatever its state. Returns what it held. */
  readonly #end = (): HeldRow | undefined => {
    const held = heldIn(this.#state);
    this.#state = 'over';
    lenders.delete(this.request.id);
    // Any other statement in flight will be answered soon; acquire() then returns the session.
    if (!held && this.#isWaiting) this.#session?.destroy();
    return held;
  };

  // This is a method because TypeScript would otherwise assume that state can't change during an await.
  #hasEnded(): boolean {
    return this.#state === 'over';
  }
}
