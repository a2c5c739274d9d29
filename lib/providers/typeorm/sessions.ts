import type { DataSource, QueryRunner } from 'typeorm';
import type { ProviderContext } from '../../engine/lock-provider.js';
import { LockCapacityError } from '../../lock/errors.js';
import type { Dialect, DriverConnection, Run } from './dialect.js';
import { ConnectionSlots, type Patron } from './connection-slots.js';
import { inTime, Session, type SessionHome, SilentServerError } from './session.js';

/** How the sessions are made; all times in ms. */
export interface SessionTerms {
  readonly guard: number;
  readonly patience: number;
  readonly maxConnections: number;
}

/** Who asks for a session, and for how many ms. */
export interface Caller extends Patron {
  /** Of the lock that it is for, if it is for one. */
  readonly key?: string;
}

/** What we know of a connection of the pool. */
interface Prepared {
  /** Ends it, sent over the control connection. */
  readonly kill: string;
  /** The control connection that was alive when it was made. */
  readonly control: object | undefined;
  usedAt: number;
}

// The control connection waits for the row of a counter, which others have for the time of one statement.
const CONTROL_LOCK_WAIT = 1_000;
// The control connection holds no lock, so nobody waits for its end. Eight hours, the default of MySQL.
const CONTROL_GUARD = 28_800_000;

/**
 * The connections of our own pool: at most `maxConnections` for attempts and holds, and one for control, which makes
 * rows, counts tokens and ends other connections. None of the application's pool is ever taken.
 */
export class Sessions implements SessionHome {
  readonly #slots: ConnectionSlots;
  readonly #prepared = new WeakMap<DriverConnection, Prepared>();
  readonly #open = new Set<Session>();
  #control: Promise<Session> | undefined;
  #closed = false;

  constructor(
    private readonly context: ProviderContext,
    private readonly dataSource: DataSource,
    readonly dialect: Dialect,
    private readonly terms: SessionTerms,
  ) {
    this.#slots = new ConnectionSlots(context.clock, terms.maxConnections);
  }

  get clock() {
    return this.context.clock;
  }

  get patience(): number {
    return this.terms.patience;
  }

  /**
   * A session for one attempt.
   *
   * @throws LockCapacityError when all connections are taken for `wait` ms, or until `signal` says that nobody wants it
   * any more.
   */
  async take(caller: Caller): Promise<Session> {
    if (!(await this.#slots.take(caller))) {
      const { key } = caller;
      throw new LockCapacityError(
        `${key === undefined ? 'All' : `Lock "${key}": all`} ${this.terms.maxConnections} connections of lock provider "${this.context.name}" are taken; raise maxConnections, or hold fewer locks at a time.`,
        { key, provider: this.context.name },
      );
    }
    const free = () => {
      this.#slots.free();
    };
    try {
      const control = await this.control();
      return await this.#openSession(control, this.terms.guard, Infinity, free);
    } catch (error) {
      free();
      throw error;
    }
  }

  /** The control connection, made anew if it was lost. */
  control(): Promise<Session> {
    if (this.#control) return this.#control;
    const control = this.#openSession(undefined, CONTROL_GUARD, CONTROL_LOCK_WAIT, () => {
      if (this.#control === control) this.#control = undefined;
    });
    this.#control = control;
    control.then(
      (session) => {
        session.onLost = () => {
          session.destroy();
        };
        if (session.isLost()) session.destroy();
      },
      () => {
        if (this.#control === control) this.#control = undefined;
      },
    );
    return control;
  }

  /** Runs a statement of autocommit on the control connection. */
  readonly run: Run = async (sql, parameters) => {
    const control = await this.control();
    try {
      return await control.run(sql, parameters);
    } catch (error) {
      // Whatever is still queued on a silent connection would be answered too late for everybody.
      if (error instanceof SilentServerError) control.destroy();
      throw error;
    }
  };

  /** Closes all connections; transactions that are open are rolled back by the server. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const session of this.#open) session.destroy();
    if (!this.dataSource.isInitialized) return;
    // A pool says farewell to the server, which may not be there to take it.
    let timer: object | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, this.patience);
    });
    await Promise.race([this.dataSource.destroy().catch(() => undefined), enough]);
    if (timer) this.clock.clearTimer(timer);
  }

  async #openSession(
    control: Session | undefined,
    guard: number,
    lockWait: number,
    onEnded: () => void,
  ): Promise<Session> {
    for (;;) {
      const runner = this.dataSource.createQueryRunner('master');
      const connection = await this.#connect(runner);
      const prepared = await this.#prepare(runner, connection, control, guard, lockWait);
      if (!prepared) continue;
      const kill = () => {
        this.#kill(prepared.kill, control);
      };
      const session = new Session(this, connection, kill, () => {
        prepared.usedAt = this.clock.now();
        this.#open.delete(session);
        // Back to the pool, or, if it is closed, out of the books of the driver.
        runner.release().catch(() => undefined);
        onEnded();
      });
      session.answered = prepared.usedAt;
      this.#open.add(session);
      return session;
    }
  }

  async #connect(runner: QueryRunner): Promise<DriverConnection> {
    const connecting = runner.connect() as Promise<DriverConnection>;
    try {
      const connection = await inTime(this, connecting);
      if (!this.#closed) return connection;
    } catch (error) {
      // It may still come. Then it goes back unused.
      connecting.then(() => runner.release()).catch(() => undefined);
      throw error;
    }
    await runner.release();
    throw new Error('The provider is stopped.');
  }

  /** Sets a new connection up; answers nothing for one that is too old to be used, and is now closed. */
  async #prepare(
    runner: QueryRunner,
    connection: DriverConnection,
    control: Session | undefined,
    guard: number,
    lockWait: number,
  ): Promise<Prepared | undefined> {
    const known = this.#prepared.get(connection);
    // One that was idle for long may be at the end of its guard; the id of one that is older than the control connection
    // may be that of somebody else.
    if (known?.control === control && known && this.clock.now() - known.usedAt < guard / 2) return known;
    if (known) {
      await this.#discard(runner, connection);
      return undefined;
    }
    try {
      const run: Run = (sql, parameters = []) => inTime(this, this.dialect.send(connection, sql, parameters));
      const sentAt = this.clock.now();
      const prepared = { kill: await this.dialect.setUp(run, guard, lockWait), control, usedAt: sentAt };
      this.#prepared.set(connection, prepared);
      return prepared;
    } catch (error) {
      await this.#discard(runner, connection);
      throw error;
    }
  }

  async #discard(runner: QueryRunner, connection: DriverConnection): Promise<void> {
    this.dialect.sever(connection);
    await runner.release();
  }

  /**
   * Ends a connection on the server's side, over the control connection that was there when it was made: after a restart
   * of the server its id may be somebody else's. Where that cannot be, the session guard ends it.
   */
  #kill(statement: string, control: Session | undefined): void {
    if (control === undefined || control.isLost() || this.#closed) return;
    control.run(statement).catch(() => undefined);
  }
}
