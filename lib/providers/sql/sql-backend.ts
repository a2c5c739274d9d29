import type {
  AcquireRequest,
  BackendContext,
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

/** One request for one key, from its first call to its release. */
export abstract class LockAttempt {
  /** Asks for the lock. A repeated call finds the hold of an earlier one. */
  abstract acquire(): Promise<Grant | 'busy'>;
  abstract renew(lease: number): Promise<RenewOutcome>;
  /** Ends it, in whatever state it is. */
  abstract release(options: ReleaseOptions): Promise<ReleaseOutcome>;
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
export abstract class SqlBackend<D extends Connected> implements LockBackend {
  abstract readonly capabilities: LockCapabilities;
  #database: Promise<D> | undefined;

  constructor(protected readonly context: BackendContext) {}

  async connect(): Promise<void> {
    await this.database();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key } = request;
    const acquire = (database: D): Promise<Grant | 'busy'> => {
      const attempt = attemptOf(request) ?? this.attempt(database, request);
      // It stays after a failure: the core repeats it or releases it, and it knows which statement may still arrive at the server.
      request.state = attempt;
      return attempt.acquire();
    };
    return this.operate(`Lock "${key}"`, acquire, key);
  }

  async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    try {
      return (await attemptOf(request)?.renew(lease)) ?? 'lost';
    } catch {
      return 'unknown';
    }
  }

  async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    try {
      // After this line an ask that came before has made its attempt.
      await this.database();
      return (await attemptOf(request)?.release(options)) ?? 'lost';
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

function attemptOf({ state }: AcquireRequest): LockAttempt | undefined {
  return state instanceof LockAttempt ? state : undefined;
}
