import type { Clock } from '../../api/clock.js';
import type { ProviderContext } from '../../api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { Dialect, DriverConnection, SessionKind, Weakness } from './dialect.js';
import { inTime, Session, type SessionHome } from './session.js';

/** What a server has to be told apart from an address. */
export interface ServerTerms {
  /** How long it may take to answer a statement of ours, in ms. */
  readonly statementTimeout: number;
  /** Use it also where two callers could hold a lock at once. */
  readonly allowUnsafeTopology: boolean;
}

// The control session holds nothing. Eight hours, the default of MySQL.
const CONTROL: SessionKind = { guard: 28_800_000, lockWait: 1_000, autocommit: true };

/** One database server: opens sessions, each looked at before it is used, and has one for control, which ends other sessions. */
export class Server implements SessionHome {
  readonly name: string;
  readonly clock: Clock;
  readonly statementTimeout: number;
  #weaknesses: readonly Weakness[] = [];
  #control: Promise<Session> | undefined;
  #isClosed = false;

  constructor(
    context: ProviderContext,
    readonly dialect: Dialect,
    private readonly terms: ServerTerms,
  ) {
    this.name = context.name;
    this.clock = context.clock;
    this.statementTimeout = terms.statementTimeout;
  }

  /** What in the configuration of the server weakens the guarantee, as the newest session saw it. */
  get weaknesses(): readonly Weakness[] {
    return this.#weaknesses;
  }

  /** @throws LockConfigError for a server on which locks cannot exclude each other */
  async open(kind: SessionKind): Promise<Session> {
    const control = await this.control();
    const session = await this.#open(kind, control);
    if (session.facts.server === control.facts.server) return session;
    await session.close();
    // The next one is opened where new connections go by now.
    control.destroy();
    throw new LockUnavailableError(
      `Lock provider "${this.name}": two connections reached two servers, as behind a load balancer or after a failover. Give it the address of one writer.`,
      { provider: this.name, sent: false },
    );
  }

  /** The control session, opened again if it was lost. */
  control(): Promise<Session> {
    if (this.#control) return this.#control;
    const control = this.#open(CONTROL, undefined);
    const forget = () => {
      if (this.#control === control) this.#control = undefined;
    };
    this.#control = control;
    control.then((session) => {
      session.onFree = forget;
      session.onLost = () => {
        session.destroy();
      };
      if (session.isLost()) session.destroy();
    }, forget);
    return control;
  }

  /** The control session is closed when it has ended the sessions that it was told to end. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const control = await this.#control?.catch(() => undefined);
    await control?.inTime(control.idle()).catch(() => undefined);
    await control?.close();
  }

  async #open(kind: SessionKind, control: Session | undefined): Promise<Session> {
    const { dialect } = this;
    const connection = await this.#connect();
    try {
      const sentAt = this.clock.now();
      const run = (sql: string, parameters: readonly unknown[] = []) =>
        inTime(this.clock, this.statementTimeout, dialect.send(connection, sql, parameters));
      const facts = await dialect.setUp(connection, run, kind);
      if (this.#isClosed) throw new Error('The provider is stopped.');
      this.#weaknesses = facts.weaknesses;
      if (!this.terms.allowUnsafeTopology) this.#refuse(facts.weaknesses);
      const session = new Session(this, connection, facts, control);
      session.answered = sentAt;
      return session;
    } catch (error) {
      dialect.sever(connection);
      throw error;
    }
  }

  async #connect(): Promise<DriverConnection> {
    const connecting = this.dialect.connect();
    try {
      const connection = await inTime(this.clock, this.statementTimeout, connecting);
      if (!this.#isClosed) return connection;
    } catch (error) {
      connecting.then(
        (late) => {
          this.dialect.sever(late);
        },
        () => undefined,
      );
      throw error;
    }
    this.dialect.sever(await connecting);
    throw new Error('The provider is stopped.');
  }

  #refuse(weaknesses: readonly Weakness[]): void {
    const errors = weaknesses.filter(({ severity }) => severity === 'error').map(({ message }) => message);
    if (errors.length === 0) return;
    throw new LockConfigError(
      `Lock provider "${this.name}": ${errors.join(' ')} If you know that this cannot happen here, set allowUnsafeTopology.`,
      { provider: this.name },
    );
  }
}
