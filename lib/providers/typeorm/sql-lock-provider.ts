import {
  type AcquireRequest,
  type Finding,
  type Grant,
  type Holder,
  type LockCapabilities,
  type LockProvider,
  type ProviderContext,
  type Records,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../api/lock-provider.js';
import { HolderTable } from '../../core/toolkit/holder-table.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../api/errors.js';
import { propertyOf } from './answer.js';
import type { Connected } from './database.js';
import { failureOf } from './failure.js';

/** One attempt to hold one key, from its first ask to its release. */
export interface LockAttempt {
  /** Asks. A repeated call finds the hold of an earlier one. */
  acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
  renew(grant: Grant, lease: number): Promise<RenewOutcome>;
  /** Ends it, in whatever state it is. */
  release(manner: ReleaseManner): Promise<ReleaseOutcome>;
  /** Whether something of it may still arrive at the server, so that the next release has to know of it. */
  readonly mayArrive?: boolean;
}

/** What a kind of lock makes of a database. */
export interface SqlLocks {
  readonly database: Connected;
  attempt(holder: Holder): LockAttempt;
  /** What has to end before the database is closed. */
  background?(): Promise<unknown>;
}

/** What all kinds of locks in a database have in common: connecting, attempts by their holder ids, errors. */
export abstract class SqlLockProvider<L extends SqlLocks> implements LockProvider {
  abstract readonly capabilities: LockCapabilities;
  /** The records of a server. */
  protected readonly serverRecords: Records = {
    compareAndSet: (name, expected, next) =>
      this.operate(`Record "${name}"`, ({ database: { records } }) => {
        if (!records) throw new LockConfigError('SQLite keeps no records.');
        return records.compareAndSet(name, expected, next);
      }),
  };
  readonly #attempts = new HolderTable<LockAttempt>();
  #context: ProviderContext | undefined;
  #locks: Promise<L> | undefined;

  async start(context: ProviderContext): Promise<void> {
    const { name: provider } = context;
    if (this.#context)
      throw new LockConfigError(`Lock provider "${provider}" was started before: make a new one.`, { provider });
    this.#context = context;
    await this.locks();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key, holder } = request;
    const ask = async (locks: L): Promise<Grant | 'busy'> => {
      const attempt = this.#attempts.get(holder) ?? locks.attempt(request);
      // It stays after a failure: the core asks again or releases it, and it knows what may still arrive at the server.
      this.#attempts.set(holder, attempt);
      const answer = await attempt.acquire(request);
      if (answer === 'busy') this.#attempts.delete(holder);
      return answer;
    };
    return this.operate(`Lock "${key}"`, ask, key);
  }

  async renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    try {
      const locks = await this.locks();
      const attempt = this.#attempts.get(grant.holder) ?? locks.attempt(grant);
      return await attempt.renew(grant, lease);
    } catch {
      return 'unknown';
    }
  }

  async release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    try {
      // An ask that came before is known after this line.
      const locks = await this.locks();
      const attempt = this.#attempts.get(holder.holder) ?? locks.attempt(holder);
      const outcome = await attempt.release(manner);
      const isKept = outcome === 'unknown' && attempt.mayArrive;
      if (!isKept && this.#attempts.get(holder.holder) === attempt) this.#attempts.delete(holder.holder);
      return outcome;
    } catch {
      return 'unknown';
    }
  }

  async check(): Promise<readonly Finding[]> {
    return (await this.locks()).database.diagnose();
  }

  async stop(): Promise<void> {
    const locks = await this.#locks?.catch(() => undefined);
    if (!locks) return;
    await locks.background?.();
    await locks.database.close();
  }

  protected abstract connect(context: ProviderContext): Promise<L>;

  /** What `work` on the database resolves to. @throws LockConfigError when the database refuses; LockUnavailableError when it does not answer */
  protected async operate<T>(what: string, work: (locks: L) => Promise<T>, key?: string): Promise<T> {
    const locks = await this.locks();
    try {
      return await work(locks);
    } catch (error) {
      throw this.#failed(what, error, { key });
    }
  }

  /** Connects, again if that has failed so far. */
  protected locks(): Promise<L> {
    this.#locks ??= this.connect(this.#started()).catch((error: unknown) => {
      this.#locks = undefined;
      throw this.#failed('The database', error, { sent: false });
    });
    return this.#locks;
  }

  #failed(what: string, error: unknown, details: { key?: string | undefined; sent?: boolean }): LockError {
    if (LockError.is(error)) return error;
    const { name: provider } = this.#started();
    // Where all addresses of a name refuse, Node gives a code only.
    const reason = (error instanceof Error && error.message) || String(propertyOf(error, 'code') ?? error);
    return ['refused', 'no-table'].includes(failureOf(error))
      ? new LockConfigError(
          `${what} of provider "${provider}" is not available. The database refused: ${reason}. ` +
            'The account needs SELECT, INSERT and UPDATE on the table of the locks (DELETE for purge()), on a server that takes writes.',
          { ...details, provider, cause: error },
        )
      : new LockUnavailableError(
          `${what} of provider "${provider}" is not available: ${reason}. Check the address and the credentials, and that the server is up; its log says more.`,
          { ...details, provider, cause: error },
        );
  }

  #started(): ProviderContext {
    if (this.#context) return this.#context;
    throw new LockConfigError('A lock provider was used before it was started.');
  }
}
