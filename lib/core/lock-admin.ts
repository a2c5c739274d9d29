import { LockConfigError } from '../api/errors.js';
import type { HeldLock, ListedJob, ListOptions, LockContention, LockInfo, WaitingLock } from '../api/lock-info.js';
import type { FailoverState } from '../api/failover-state.js';
import type { Diagnostic, LockBackend } from '../api/lock-provider.js';
import type { PurgeOptions } from '../api/purge-options.js';
import { shown } from '../api/printable.js';
import type { Clock } from '../api/clock.js';
import { normalizeKeys } from '../key/lock-key.js';
import { madeByNest } from './toolkit/arguments.js';
import { withJson } from './toolkit/with-json.js';
import type { Contention } from './insight/contention.js';
import type { Holder } from './hold/holder.js';
import { listedJob, parseRecord } from './job-record.js';
import type { ProviderCore } from './provider-core.js';
import type { Providers } from './providers.js';

type BackendClass<B extends LockBackend> = abstract new (...args: never[]) => B;

/** Shows operators which locks are held, and frees them. Nothing of it is reachable from outside by itself. */
export class LockAdmin {
  /** @internal */
  constructor(
    private readonly providers: Providers = madeByNest('LockAdmin'),
    private readonly defaultProvider: string,
    private readonly clock: Clock,
    private readonly waits: Contention,
  ) {}

  /**
   * The state of a key at the backend, or `null` when it is free.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError where the provider does not know.
   */
  async inspect(key: string, provider?: string): Promise<LockInfo | null> {
    const core = this.#core(provider);
    if (!core.capabilities.forceRelease || !core.backend.inspect) {
      return notOffered(core, 'inspect(), isLocked() and leader()');
    }
    const info = await core.backend.inspect(oneKey(key));
    return info && withJson(info);
  }

  /**
   * All keys of the namespace that are held or retained, in no order, one after the other as the backend is read. A key that is taken or
   * freed meanwhile may be in it or not. It needs bounded memory, whatever the number of locks.
   *
   * @example `for await (const lock of admin.list({ prefix: 'order:' })) console.log(lock.key, lock.instances);`
   * @throws LockConfigError where the provider cannot tell. The iteration throws LockUnavailableError when the backend does not answer.
   */
  list({ prefix = '', provider }: ListOptions = {}): AsyncIterable<LockInfo> {
    const core = this.#core(provider);
    if (typeof prefix !== 'string') {
      throw new LockConfigError(
        `Option "prefix" of list() is ${shown(prefix)}, but must be a string: list() returns the keys that start with it.`,
      );
    }
    return eachWithJson(core.backend.list?.({ prefix }) ?? notOffered(core, 'list()'));
  }

  /**
   * Frees a key. A lock that is held is lost, and its signal aborts as soon as its process notices.
   * Resolves to whether the key was held or retained (`minHold`).
   *
   * @throws LockConfigError where the provider cannot do it.
   */
  async forceRelease(key: string, provider = this.defaultProvider): Promise<boolean> {
    const core = this.providers.get(provider);
    if (!core.capabilities.forceRelease || !core.backend.forceRelease) return notOffered(core, 'forceRelease()');
    const wasLocked = await core.queues.forceRelease(oneKey(key));
    core.events.publish('force-released', { key, provider: core.name, wasLocked });
    return wasLocked;
  }

  /**
   * The settings of the server, and of the provider, that weaken the guarantee, as at boot.
   *
   * @param provider default: the module's default provider
   */
  async diagnose(provider?: string): Promise<readonly Diagnostic[]> {
    return (await this.#core(provider).backend.diagnose?.()) ?? [];
  }

  /**
   * Deletes the rows of SQL row and version locks that have not been used for `unusedFor`, and that no caller holds. Resolves to how many.
   *
   * A row lock leaves no trace of its use, so its row counts from its creation: a key that is used again costs one more statement the first
   * time, and while its row goes an attempt that does not wait may find it busy. Rows of version locks: instead of `purgeAfter`.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError where the provider has no rows
   */
  async purge(options: PurgeOptions, provider?: string): Promise<number> {
    const core = this.#core(provider);
    return await (core.backend.purge?.(options) ?? notOffered(core, 'purge()'));
  }

  /**
   * Makes a member of a failover provider the one that grants, for all processes. Locks of the one before end within `window`. It stays until it
   * fails or `switchTo` is called again: there is no failback.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError for a name that is not among its `providers`, and where the provider is no failover
   * @throws LockUnavailableError when it is unknown whether it was switched
   */
  async switchTo(member: string, provider?: string): Promise<void> {
    const core = this.#core(provider);
    await (core.backend.switchTo?.(member) ?? notOffered(core, 'switchTo()'));
  }

  /**
   * The member of a failover provider that grants, the health of each, and the latest switches, as this process sees them.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError where the provider is no failover
   */
  failoverState(provider?: string): FailoverState {
    const core = this.#core(provider);
    return core.backend.state ?? notOffered(core, 'failoverState()');
  }

  /** @internal The backend of a provider, in a test. */
  backend<B extends LockBackend>(kind: BackendClass<B>, provider?: string): B {
    const { name, backend } = this.#core(provider);
    if (backend instanceof kind) return backend;
    throw new LockConfigError(
      `Lock provider "${name}" has a ${backend.constructor.name}, not a ${kind.name}. Pass the name of the provider that has one as the second argument.`,
      {
        provider: name,
      },
    );
  }

  /**
   * The last run of each job of the namespace that has ticks, on all providers, in no order. It needs bounded memory, whatever the number of jobs.
   *
   * @example `for await (const { key, state, tick } of admin.jobs()) console.log(key, state, tick);`
   * @throws the iteration throws LockUnavailableError when a backend does not answer
   */
  async *jobs(): AsyncIterable<ListedJob> {
    // A provider that is built on others comes after them, and may keep its records in one of theirs.
    const all = [...this.providers].reverse();
    const stores = new Set<unknown>();
    for (const core of all) {
      const { records } = core.backend;
      if (!records || stores.has(records)) continue;
      stores.add(records);
      for await (const { name, value } of records.list()) {
        const record = parseRecord(value);
        if (typeof record !== 'object') continue;
        yield listedJob(name, core.name, record, core.jobs.get(name)?.nextTick(this.clock.wallTime()));
      }
    }
  }

  /**
   * Runs a job of this application now, under its lock and for no tick: nothing is recorded, so the next tick is due as before. The job is a method
   * that `@RunOnce` runs by the ticks of `@Cron`, and need not be scheduled in this process. A tick that is due meanwhile waits for half a period, at most 5 s,
   * and is skipped if the run takes longer.
   *
   * @param job the key of its lock
   * @param provider needed only where two providers have a job of that key
   * @returns whether it ran: `false` if its lock is busy, because it runs now, here or in another process
   * @throws what the method throws; LockConfigError for a job that this application does not have; otherwise as `withLock()`
   */
  async runNow(job: string, provider?: string): Promise<boolean> {
    const cores = provider === undefined ? [...this.providers] : [this.#core(provider)];
    const [found, another] = cores.flatMap((core) => core.jobs.get(job) ?? []);
    if (found && !another) return await found.runNow();
    const known = cores.flatMap(({ jobs, name }) => Array.from(jobs.keys(), (key) => `"${key}" (provider "${name}")`));
    throw new LockConfigError(
      found
        ? `Job ${shown(job)} is on several providers. Pass the name of one as the second argument of runNow(). The jobs are ${known.join(', ')}.`
        : `This application has no job ${shown(job)} that runNow() could run. Import the module that has it, and ScheduleModule.forRoot({ cronJobs: false }) if this process schedules nothing. ` +
            `A job is a method with @Cron and @RunOnce without "minHold". The jobs are ${known.join(', ') || 'none'}.`,
    );
  }

  /** The locks that this process holds. */
  held(): HeldLock[] {
    const now = this.clock.now();
    const wallTime = this.clock.wallTime();
    return [...this.providers].flatMap((core) =>
      holdersAt(core, now).map((holder) =>
        withJson({
          key: holder.subject.key,
          provider: core.name,
          mode: holder.terms.mode,
          method: holder.subject.method,
          acquiredAt: new Date(wallTime - (now - holder.grantedAt)),
          fencingToken: holder.fencingToken,
          remaining: Math.round(holder.remaining(now)),
          entries: holder.entries,
        }),
      ),
    );
  }

  /** The locks that this process waits for. */
  waiting(): WaitingLock[] {
    const now = this.clock.now();
    return [...this.providers].flatMap(({ queues }) =>
      queues.waiting.map(({ subject: { key, provider, mode, method }, startedAt }) => ({
        ...{ key, provider, mode, method },
        waited: Math.round(now - startedAt),
      })),
    );
  }

  /**
   * How callers of this process have waited for busy locks since the application started, a row for each template and provider, the longest wait first.
   * At most 500 rows: templates that came after the first 499 are in one row, whose `template` is `null`.
   *
   * @example `console.table(admin.contention().map(({ template, queue, holder }) => ({ template, queue: queue.waited, holder: holder.waited })));`
   */
  contention(): LockContention[] {
    return this.waits.rows;
  }

  #core(name = this.defaultProvider): ProviderCore {
    return this.providers.get(name);
  }
}

/** Those that hold at `now`, the oldest first. */
function holdersAt({ watchdog }: ProviderCore, now: number): Holder[] {
  return watchdog.grants
    .flatMap(({ holders }) => holders)
    .filter((holder) => holder.isValid(now))
    .sort((one, other) => one.grantedAt - other.grantedAt || (one.subject.key < other.subject.key ? -1 : 1));
}

async function* eachWithJson(locks: AsyncIterable<LockInfo>): AsyncGenerator<LockInfo> {
  for await (const lock of locks) yield withJson(lock);
}

function oneKey(key: string): string {
  const [only] = normalizeKeys(key);
  return only ?? key;
}

function notOffered(core: ProviderCore, what: string): never {
  throw new LockConfigError(`Lock provider "${core.name}" does not offer ${what}: use a provider that does.`, {
    provider: core.name,
  });
}
