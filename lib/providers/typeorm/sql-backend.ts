import type {
  AcquireRequest,
  BackendContext,
  Diagnostic,
  Grant,
  Holder,
  LockBackend,
  LockCapabilities,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Run } from './answer.js';
import { lockErrorOf } from './failure.js';

/** One attempt to hold one key, from its first call to its release. */
export interface LockAttempt {
  /** Asks for the lock. A repeated call finds the hold of an earlier one. */
  acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
  renew(grant: Grant, lease: number): Promise<RenewOutcome>;
  /** Ends it, in whatever state it is. */
  release(options: ReleaseOptions): Promise<ReleaseOutcome>;
  /** Whether a statement of it may still arrive at the server, so that the next release has to take it into account. */
  readonly mayArrive?: boolean;
}

/** A database that is connected. */
export interface Connected {
  /** Runs a statement in autocommit. */
  readonly run: Run;
  /** What in the configuration weakens the guarantee. */
  diagnose(): readonly Diagnostic[];
  close(): Promise<void>;
}

/** The common part of all kinds of locks in a database: connecting, attempts by their holder ids, errors. */
export abstract class SqlBackend<D extends Connected> implements LockBackend {
  abstract readonly capabilities: LockCapabilities;
  readonly #attempts = new Map<string, LockAttempt>();
  #database: Promise<D> | undefined;

  constructor(protected readonly context: BackendContext) {}

  async connect(): Promise<void> {
    await this.database();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key, holder } = request;
    const acquire = async (database: D): Promise<Grant | 'busy'> => {
      const attempt = this.#attempts.get(holder) ?? this.attempt(database, request);
      // It stays after a failure: the core repeats it or releases it, and it knows which statement may still arrive at the server.
      this.#attempts.set(holder, attempt);
      const answer = await attempt.acquire(request);
      if (answer === 'busy') this.#attempts.delete(holder);
      return answer;
    };
    return this.operate(`Lock "${key}"`, acquire, key);
  }

  async renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    try {
      const database = await this.database();
      const attempt = this.#attempts.get(grant.holder) ?? this.attempt(database, grant);
      return await attempt.renew(grant, lease);
    } catch {
      return 'unknown';
    }
  }

  async release(holder: Holder, options: ReleaseOptions): Promise<ReleaseOutcome> {
    try {
      // After this line the attempt of an earlier call is in the table.
      const database = await this.database();
      const attempt = this.#attempts.get(holder.holder) ?? this.attempt(database, holder);
      const outcome = await attempt.release(options);
      const isKept = outcome === 'unknown' && attempt.mayArrive;
      if (!isKept && this.#attempts.get(holder.holder) === attempt) this.#attempts.delete(holder.holder);
      return outcome;
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
  protected abstract attempt(database: D, holder: Holder): LockAttempt;

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
