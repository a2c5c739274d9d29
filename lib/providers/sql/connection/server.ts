import type { Clock } from '../../../api/clock.js';
import type { BackendContext, Diagnostic } from '../../../api/lock-provider.js';
import { LockConfigError, type LockError, LockUnavailableError } from '../../../api/errors.js';
import type { Dialect, DriverConnection, ServerFacts, SessionKind } from './dialect.js';
import { faultOf, inTime, LOGIN_REMEDY, reasonOf } from './failure.js';
import type { SqlSettings } from '../options.js';
import { REFUSAL_RETRIED_FOR } from '../../../core/toolkit/retryable.js';
import { detached } from '../../../core/toolkit/detached.js';
import { pause } from '../../../core/toolkit/timing.js';
import { Session } from './session.js';

// How long to wait before trying again to end sessions on an unreachable server, in ms.
const PAUSE = 1_000;
// The control session doesn't hold locks. Eight hours is MySQL's default.
const CONTROL: SessionKind = { guard: 28_800_000, lockWait: 1_000, autocommit: true };

/**
 * One database server. Opens sessions, checks each before it is used, and has a control session that can end the
 * others.
 */
export class Server {
  readonly name: string;
  readonly clock: Clock;
  readonly commandTimeout: number;
  readonly allowsReadOnly: boolean;
  /** The server's configuration problems, as found by the newest session. */
  diagnostics: readonly Diagnostic[] = [];
  /** When the latest statement that timed out was sent. */
  silentSince = -Infinity;
  /** Whether the server has ever accepted a login. */
  #hasAccepted = false;
  /** When the server started rejecting the login. */
  #refusedSince: number | undefined;
  /** All open sessions, including the control session. */
  readonly #sessions = new Set<Session>();
  #control: Promise<Session> | undefined;
  /** Sessions that could not be ended on the server, because the control session had failed too. */
  readonly #orphans: Session[] = [];
  readonly #closing = new AbortController();
  /** Aborts when the application shuts down. */
  readonly closing: AbortSignal = this.#closing.signal;

  constructor(
    context: BackendContext,
    readonly dialect: Dialect,
    settings: Pick<SqlSettings, 'commandTimeout' | 'allowUnsafeTopology'>,
  ) {
    this.name = context.name;
    this.clock = context.clock;
    this.commandTimeout = settings.commandTimeout;
    this.allowsReadOnly = settings.allowUnsafeTopology;
  }

  /** @throws LockConfigError if the server can't guarantee mutual exclusion */
  async open(kind: SessionKind): Promise<Session> {
    const control = await this.control();
    const session = await this.#open(kind, control);
    if (session.facts.server === control.facts.server) return session;
    // The next attempt uses whichever server new connections reach by then.
    await session.close();
    throw this.#twoServers();
  }

  /** The control session, reopened if it was lost. */
  control(): Promise<Session> {
    this.#control ??= this.#openControl();
    return this.#control;
  }

  async #openControl(): Promise<Session> {
    const forget = () => {
      this.#control = undefined;
    };
    try {
      const session = await this.#open(CONTROL, undefined);
      session.onFree = forget;
      session.onLost = session.destroy;
      if (session.isLost()) session.destroy();
      return session;
    } catch (error) {
      forget();
      throw error;
    }
  }

  async confirmWriter(): Promise<void> {
    const control = await this.control();
    await control.beat();
  }

  loseReadOnly(server: string): LockConfigError {
    const error = new LockConfigError(
      `Lock provider "${this.name}": this server is now read-only, so other processes may lock on the writer. Configure the provider with the writer's address.`,
      { provider: this.name, refused: true },
    );
    this.#loseWhere((session) => session.facts.server === server, error);
    return error;
  }

  ended(session: Session): void {
    this.#sessions.delete(session);
  }

  /** Whether a statement has timed out and nothing sent since then has been answered. */
  get isSilent(): boolean {
    return [...this.#sessions].every(({ answered }) => answered < this.silentSince);
  }

  fellSilent(since: number): void {
    this.silentSince = Math.max(this.silentSince, since);
  }

  endOnServer(session: Session, control: Session): void {
    session.isEnding = true;
    this.#end(session, control).catch(() => {
      // If a NAT has dropped our connections, both sessions are dead, but the server still considers them alive.
      control.destroy();
      if (this.#orphans.push(session) === 1) void this.#endOrphans();
    });
  }

  /**
   * Ends sessions in use, so the server rolls back their transactions. The control session closes last, because it ends
   * the others.
   */
  async close(): Promise<void> {
    this.#closing.abort(new Error('Locks are no longer available, because the application is shutting down.'));
    for (const session of this.#sessions) if (session.control) session.destroy();
    const control = await this.#control?.catch(() => undefined);
    await control?.idle().catch(() => undefined);
    await control?.close();
  }

  /** Ends orphaned sessions as soon as the server is reachable again. */
  async #endOrphans(): Promise<void> {
    while (this.#orphans.length > 0 && !this.closing.aborted) {
      try {
        const control = await this.control();
        const uptime = await this.dialect.uptime(control.run);
        for (const session of [...this.#orphans]) {
          if (this.#isThere(session, control, uptime)) await this.#end(session, control);
          else session.isEnding = false;
          this.#orphans.splice(this.#orphans.indexOf(session), 1);
        }
      } catch {
        await pause(this.clock, PAUSE, this.closing);
      }
    }
  }

  /**
   * Whether the session may still exist. After a server restart, or on another server, its id would belong to another
   * connection. A statement may have been sent up to a third of the guard after the last answer, and may have waited
   * for a lock as long as the guard, which then runs until the session ends.
   */
  #isThere({ facts, openedAt, answered, kind }: Session, control: Session, uptime: number): boolean {
    const { clock } = this;
    if (facts.server !== control.facts.server || clock.uptime() - openedAt > uptime) return false;
    return clock.now() - answered <= 3 * kind.guard;
  }

  async #end(session: Session, control: Session): Promise<void> {
    const { kill } = session.facts;
    try {
      if (kill !== undefined) await control.run(kill);
    } catch (error) {
      // The server answered, so the session no longer exists.
      if (!this.dialect.isAnswer(error)) throw error;
    }
    session.isEnding = false;
  }

  /**
   * Runs detached: a session outlives the call that opens it, and its driver would otherwise retain the call's async
   * context.
   */
  #open(kind: SessionKind, control: Session | undefined): Promise<Session> {
    return detached(async () => {
      const connection = await this.#connect();
      try {
        const sentAt = this.clock.now();
        const facts = await this.#setUp(connection, kind);
        const session = new Session(this, connection, facts, control, kind, sentAt);
        this.#sessions.add(session);
        // New connections now reach this server, so other clients take their locks here. Sessions on other servers are
        // lost.
        this.#loseWhere(({ facts: { server } }) => server !== facts.server, this.#twoServers());
        return session;
      } catch (error) {
        this.dialect.sever(connection);
        throw error;
      }
    });
  }

  async reset(connection: DriverConnection, kind: SessionKind): Promise<void> {
    await this.dialect.reset(connection);
    await this.#setUp(connection, kind);
  }

  /** @throws LockConfigError if the server can't guarantee mutual exclusion */
  async #setUp(connection: DriverConnection, kind: SessionKind): Promise<ServerFacts> {
    const { dialect } = this;
    const run = (sql: string, parameters: readonly unknown[] = []) =>
      inTime(this.clock, this.commandTimeout, dialect.send(connection, sql, parameters));
    for (const sql of kind.initSql ?? []) await run(sql).catch((error: unknown) => this.#refuseInitSql(sql, error));
    const facts = await dialect.setUp(connection, run, kind);
    this.closing.throwIfAborted();
    const problems = [...facts.unsafe, ...facts.readOnly];
    this.diagnostics = problems.map((message) => ({ severity: 'error', message }));
    if (this.allowsReadOnly) return { ...facts, isReadOnly: 'false' };
    if (problems.length > 0) this.#refuse(facts, problems.join(' '));
    return facts;
  }

  /** Marks sessions as lost, along with their locks. */
  #loseWhere(isLost: (session: Session) => boolean, cause: LockError): void {
    for (const session of [...this.#sessions].filter(isLost)) session.lose(cause);
  }

  #twoServers(): LockUnavailableError {
    return new LockUnavailableError(
      `Lock provider "${this.name}": two connections reached different servers, for example behind a load balancer or after a failover. Configure it with the address of a single writer.`,
      { provider: this.name, sent: false },
    );
  }

  async #connect(): Promise<DriverConnection> {
    const { dialect } = this;
    const connecting = dialect.connect();
    try {
      const connection = await inTime(this.clock, this.commandTimeout, connecting);
      this.#hasAccepted = true;
      this.#refusedSince = undefined;
      this.closing.throwIfAborted();
      return connection;
    } catch (error) {
      // The connection may still be established later.
      connecting.then(
        (late) => dialect.sever(late),
        () => undefined,
      );
      throw this.#maybeForNow(error);
    }
  }

  /**
   * If an earlier login was accepted, treats a rejection as an outage for a while: the next connection reads a rotated
   * password.
   */
  #maybeForNow(error: unknown): unknown {
    if (faultOf(error) !== 'login' || !this.#hasAccepted) return error;
    const now = this.clock.now();
    this.#refusedSince ??= now;
    if (now - this.#refusedSince >= REFUSAL_RETRIED_FOR) return error;
    return new LockUnavailableError(
      `Lock provider "${this.name}": the database rejected the login, which it previously accepted: ${reasonOf(error)}. ${LOGIN_REMEDY} If the password is rotated, provide it as a function or getter, which is read on every new connection.`,
      { provider: this.name, cause: error, sent: false },
    );
  }

  #refuseInitSql(sql: string, error: unknown): never {
    if (!this.dialect.isAnswer(error)) throw error;
    throw new LockConfigError(
      `Lock provider "${this.name}": the database rejected "${sql}" from connectionInitSql: ${String(error)}. Fix or remove the statement.`,
      { provider: this.name, cause: error },
    );
  }

  #refuse({ unsafe, server }: ServerFacts, problems: string): never {
    // Otherwise, the server only rejects writes.
    const refused = unsafe.length === 0;
    const refusal = new LockConfigError(
      `Lock provider "${this.name}": ${problems} If you are sure that this is safe here, set allowUnsafeTopology.`,
      { provider: this.name, refused },
    );
    if (refused) this.#loseWhere((session) => session.facts.server === server, refusal);
    throw refusal;
  }
}
