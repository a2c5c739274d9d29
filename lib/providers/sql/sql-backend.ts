import type {
  AcquireRequest,
  BackendContext,
  CasStore,
  Diagnostic,
  Grant,
  LockBackend,
  LockCapabilities,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Run } from './connection/answer.js';
import { lockErrorOf } from './connection/failure.js';
import type { DatabaseSettings } from './options.js';
import { SqlCasStore } from './table/cas-store.js';

/** One request for one key, from its first call to its release. */
export interface LockAttempt {
  /** Asks for the lock. A repeated call finds the hold of an earlier one. */
  acquire(): Promise<Grant | 'busy'>;
  /** For how many ms the database has not answered a question of a request that waits. */
  readonly unansweredFor?: number;
  renew(lease: number): Promise<RenewOutcome>;
  /** Ends it, in whatever state it is. */
  release(options: ReleaseOptions): Promise<ReleaseOutcome>;
}

/** A database that is connected. */
export interface Connected {
  /** Runs a statement in autocommit. */
  readonly run: Run;
  /** What in the configuration weakens the guarantee. */
  diagnose(): readonly Diagnostic[];
  close(): Promise<void>;
}

/** The common part of all kinds of locks in a database: connecting, the attempt of each request, errors. */
export abstract class SqlBackend<D extends Connected, S extends DatabaseSettings> implements LockBackend {
  abstract readonly capabilities: LockCapabilities;
  /** On a server; not in SQLite. */
  readonly casStore?: CasStore;
  readonly commandTimeout: number | undefined;
  #database: Promise<D> | undefined;

  constructor(
    protected readonly context: BackendContext,
    protected readonly settings: S,
  ) {
    const { source } = settings;
    if (source.database === 'sqlite') return;
    this.commandTimeout = settings.statementTimeout;
    this.casStore = new SqlCasStore({ ...settings, source }, context, () => this.database());
  }

  async connect(): Promise<void> {
    await this.database();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key } = request;
    const acquire = (database: D): Promise<Grant | 'busy'> => {
      // It stays after a failure: the core repeats it or releases it, and it knows which statement may still arrive at the server.
      const attempt = (request.state ??= this.attempt(database, request)) as LockAttempt;
      return attempt.acquire();
    };
    return this.operate(`Lock "${key}"`, acquire, key);
  }

  unansweredFor({ state }: AcquireRequest): number {
    return (state as LockAttempt | undefined)?.unansweredFor ?? 0;
  }

  async renew({ state }: AcquireRequest, lease: number): Promise<RenewOutcome> {
    try {
      return (await (state as LockAttempt | undefined)?.renew(lease)) ?? 'lost';
    } catch {
      return 'unknown';
    }
  }

  async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    try {
      // After this line an ask that came before has made its attempt.
      await this.database();
      return (await (request.state as LockAttempt | undefined)?.release(options)) ?? 'lost';
    } catch {
      return 'unknown';
    }
  }

  async diagnose(): Promise<readonly Diagnostic[]> {
    return (await this.database()).diagnose();
  }

  async close(): Promise<void> {
    const database = await this.#database?.catch(() => undefined);
    await database?.close();
  }

  protected abstract open(): Promise<D>;
  protected abstract attempt(database: D, request: AcquireRequest): LockAttempt;

  /** The database. Each call connects again until that has succeeded. */
  protected database(): Promise<D> {
    this.#database ??= this.open().catch((error: unknown) => {
      this.#database = undefined;
      throw lockErrorOf(error, 'The database', { provider: this.context.name, sent: false });
    });
    return this.#database;
  }

  /** What `work` on the database resolves to. @throws LockConfigError when the database refuses; LockUnavailableError when it does not answer */
  protected async operate<T>(what: string, work: (database: D) => Promise<T>, key?: string): Promise<T> {
    const database = await this.database();
    try {
      return await work(database);
    } catch (error) {
      throw lockErrorOf(error, what, { provider: this.context.name, key });
    }
  }
}
