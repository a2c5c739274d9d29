import type { Clock } from '../../api/clock.js';
import type { BackendContext, Diagnostic } from '../../api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { Dialect, DriverConnection, SessionKind } from './dialect.js';
import type { DatabaseSettings } from './options.js';
import { inTime, Session, type SessionHome } from './session.js';

// The control session holds nothing. Eight hours, the default of MySQL.
const CONTROL: SessionKind = { guard: 28_800_000, lockWait: 1_000, autocommit: true };

/** One database server: opens sessions, each looked at before it is used, and has one for control, which ends other sessions. */
export class Server implements SessionHome {
  readonly name: string;
  readonly clock: Clock;
  readonly statementTimeout: number;
  #diagnostics: readonly Diagnostic[] = [];
  #control: Promise<Session> | undefined;
  #isClosed = false;

  constructor(
    context: BackendContext,
    readonly dialect: Dialect,
    private readonly settings: Pick<DatabaseSettings, 'statementTimeout' | 'allowUnsafeTopology'>,
  ) {
    this.name = context.name;
    this.clock = context.clock;
    this.statementTimeout = settings.statementTimeout;
  }

  /** Weaknesses in the configuration of the server, as the newest session saw them. */
  get diagnostics(): readonly Diagnostic[] {
    return this.#diagnostics;
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

  /** The control session is closed when it has ended the sessions that it had to end. */
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
      if (this.#isClosed) throw new Error('The locks are closed, because the application stops.');
      this.#diagnostics = facts.diagnostics;
      if (!this.settings.allowUnsafeTopology) this.#refuse(facts.diagnostics);
      const session = new Session(this, connection, facts, control, kind.guard);
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
    throw new Error('The locks are closed, because the application stops.');
  }

  #refuse(diagnostics: readonly Diagnostic[]): void {
    const errors = diagnostics.filter(({ severity }) => severity === 'error').map(({ message }) => message);
    if (errors.length === 0) return;
    throw new LockConfigError(
      `Lock provider "${this.name}": ${errors.join(' ')} If you know that this cannot happen here, set allowUnsafeTopology.`,
      { provider: this.name },
    );
  }
}
