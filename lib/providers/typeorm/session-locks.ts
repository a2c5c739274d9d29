import {
  type AcquireRequest,
  type Answer,
  type Finding,
  type Grant,
  type Holder,
  HolderTable,
  type ProviderContext,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../engine/lock-provider.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../lock/errors.js';
import type { DatabaseSettings } from './database-options.js';
import { connect, type Database } from './database.js';
import { driverErrorOf } from './dialect.js';

/** One attempt to hold one key, by a lock that lives as long as a connection. */
export interface LockAttempt {
  /** What it holds, if it does; with the deadline as it is by now. */
  readonly grant: Grant | undefined;
  /** Asks. To be called once. */
  acquire(): Promise<Grant | 'busy'>;
  renew(): Answer<RenewOutcome>;
  /** Ends it, wherever it stands. */
  release(failed: boolean): Answer<ReleaseOutcome>;
}

/** What a kind of lock is made of. */
export interface LockKind {
  /** Whether it cannot do without the table of the locks. */
  readonly needsTable: boolean;
  /** Looks at a database before its first attempt, and answers how attempts are made on it. */
  prepare(database: Database, context: ProviderContext): Answer<(request: AcquireRequest) => LockAttempt>;
}

/** A provider at work: connected anew by whoever needs the database, if that has failed so far. */
export class SessionLocks {
  readonly #attempts = new HolderTable<LockAttempt>();
  #context: ProviderContext | undefined;
  #ready: Promise<Ready> | undefined;

  constructor(
    private readonly settings: DatabaseSettings,
    private readonly kind: LockKind,
  ) {}

  async start(context: ProviderContext): Promise<void> {
    if (this.#context) {
      throw new LockConfigError(`Lock provider "${context.name}" was started before: make a new one.`, {
        provider: context.name,
      });
    }
    this.#context = context;
    await this.#connected();
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key, holder } = request;
    const held = this.#attempts.get(holder)?.grant;
    if (held) return held;
    let attempt: LockAttempt | undefined;
    try {
      attempt = (await this.#connected()).attempt(request);
      this.#attempts.set(holder, attempt);
      const answer = await attempt.acquire();
      if (answer === 'busy') this.#forget(holder, attempt);
      return answer;
    } catch (error) {
      if (attempt) this.#forget(holder, attempt);
      if (LockError.is(error)) throw error;
      const { name } = this.#started();
      throw new LockUnavailableError(
        `Lock "${key}" of provider "${name}": the database did not answer or refused; check the server and its log.`,
        { key, provider: name, cause: driverErrorOf(error) },
      );
    }
  }

  async renew({ holder }: Grant): Promise<RenewOutcome> {
    return (await this.#attempts.get(holder)?.renew()) ?? 'lost';
  }

  async release({ holder }: Holder, { failed }: ReleaseManner): Promise<ReleaseOutcome> {
    const attempt = this.#attempts.get(holder);
    if (!attempt) return 'lost';
    this.#attempts.delete(holder);
    return attempt.release(failed);
  }

  async check(): Promise<readonly Finding[]> {
    return (await this.database()).weaknesses;
  }

  async database(): Promise<Database> {
    return (await this.#connected()).database;
  }

  async stop(): Promise<void> {
    const ready = await this.#ready?.catch(() => undefined);
    await ready?.database.sessions.close();
  }

  #connected(): Promise<Ready> {
    this.#ready ??= this.#connect().catch((error: unknown) => {
      this.#ready = undefined;
      if (LockError.is(error)) throw error;
      const { name } = this.#started();
      throw new LockUnavailableError(
        `Lock provider "${name}" cannot reach its database: check its address and credentials, and that it is up.`,
        { provider: name, cause: driverErrorOf(error) },
      );
    });
    return this.#ready;
  }

  async #connect(): Promise<Ready> {
    const context = this.#started();
    const database = await connect(this.settings, context, this.kind.needsTable);
    try {
      return { database, attempt: await this.kind.prepare(database, context) };
    } catch (error) {
      await database.sessions.close();
      throw error;
    }
  }

  #started(): ProviderContext {
    if (this.#context) return this.#context;
    throw new LockConfigError('A lock provider was used before it was started.');
  }

  #forget(holder: string, attempt: LockAttempt): void {
    if (this.#attempts.get(holder) === attempt) this.#attempts.delete(holder);
  }
}

interface Ready {
  readonly database: Database;
  attempt(request: AcquireRequest): LockAttempt;
}
