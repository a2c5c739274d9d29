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

/** Lets operators inspect and free locks. It doesn't expose an endpoint. */
export class LockAdmin {
  /** @internal */
  constructor(
    private readonly providers: Providers = madeByNest('LockAdmin'),
    private readonly defaultProvider: string,
    private readonly clock: Clock,
    private readonly waits: Contention,
  ) {}

  /**
   * The state of a key on the backend, or `null` if it is free.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError if the provider does not support it
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
   * Iterates over all keys of the namespace that are held or retained, in no particular order. Keys acquired or freed
   * during the iteration may be missing. Memory use is bounded, however many locks there are.
   *
   * @example `for await (const lock of admin.list({ prefix: 'order:' })) console.log(lock.key, lock.instances);`
   * @throws LockConfigError if the provider does not support it. Iterating throws LockUnavailableError if the backend
   * does not respond.
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
   * Frees a key. If it was held, the holder loses its lock, and the lock's signal aborts as soon as the holder's
   * process notices. Resolves to whether the key was held or retained (`minHold`).
   *
   * @throws LockConfigError if the provider does not support it
   */
  async forceRelease(key: string, provider = this.defaultProvider): Promise<boolean> {
    const core = this.providers.get(provider);
    if (!core.capabilities.forceRelease || !core.backend.forceRelease) return notOffered(core, 'forceRelease()');
    const wasLocked = await core.queues.forceRelease(oneKey(key));
    core.events.publish('force-released', { key, provider: core.name, wasLocked });
    return wasLocked;
  }

  /**
   * Finds server and provider settings that weaken the guarantee, as the startup check does.
   *
   * @param provider default: the module's default provider
   */
  async diagnose(provider?: string): Promise<readonly Diagnostic[]> {
    return (await this.#core(provider).backend.diagnose?.()) ?? [];
  }

  /**
   * Deletes the rows of SQL row locks and version locks that are not held and have not been used for `unusedFor`.
   * Resolves to the number of deleted rows.
   *
   * Using a row lock doesn't change its row, so a row lock's time counts from the row's creation. The next use of
   * a deleted key costs one extra statement. During the deletion, a call with `wait: 0` may find the key busy.
   * For version locks, this method is an alternative to `purgeAfter`.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError if the provider doesn't use rows
   */
  async purge(options: PurgeOptions, provider?: string): Promise<number> {
    const core = this.#core(provider);
    return await (core.backend.purge?.(options) ?? notOffered(core, 'purge()'));
  }

  /**
   * Makes a failover provider grant locks through this member, in all processes. The previous member's locks end within
   * `window`. The member stays active until it fails or you call `switchTo` again; there is no failback after a manual
   * switch.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError if the name is not among its `providers`, or if the provider is not a failover provider
   * @throws LockUnavailableError if the outcome of the switch is unknown
   */
  async switchTo(member: string, provider?: string): Promise<void> {
    const core = this.#core(provider);
    await (core.backend.switchTo?.(member) ?? notOffered(core, 'switchTo()'));
  }

  /**
   * A failover provider's active member, each member's health, and the latest switches, as this process sees them.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError if the provider is not a failover provider
   */
  failoverState(provider?: string): FailoverState {
    const core = this.#core(provider);
    return core.backend.state ?? notOffered(core, 'failoverState()');
  }

  /** @internal A provider's backend, for tests. */
  backend<B extends LockBackend>(kind: BackendClass<B>, provider?: string): B {
    const { name, backend } = this.#core(provider);
    if (backend instanceof kind) return backend;
    throw new LockConfigError(
      `Lock provider "${name}" has a ${backend.constructor.name}, not a ${kind.name}. As the second argument, pass the name of a provider that has one.`,
      {
        provider: name,
      },
    );
  }

  /**
   * Iterates over the last run of each of the namespace's jobs that have ticks, on all providers, in no particular
   * order. Memory use is bounded, however many jobs there are.
   *
   * @example `for await (const { key, state, tick } of admin.jobs()) console.log(key, state, tick);`
   * @throws LockUnavailableError, during iteration, if a backend does not respond
   */
  async *jobs(): AsyncIterable<ListedJob> {
    // Starts with composite providers, which come after their members in `providers` and may store their records in a
    // member.
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
   * Runs one of this application's jobs now, under its lock. The run doesn't belong to a tick and isn't recorded, so
   * the next tick remains due. The job must be a method that `@RunOnce` runs at `@Cron` ticks, but this
   * process doesn't have to schedule it. A tick that becomes due during the run waits for half a period (at most 5 s)
   * and is skipped if the run takes longer.
   *
   * @param job the job's lock key
   * @param provider only needed if two providers have a job with this key
   * @returns whether the job ran: `false` if its lock is busy because the job is already running, here or in another
   * process
   * @throws whatever the method throws; LockConfigError if this application doesn't have the job; otherwise, the same
   * errors as `withLock()`
   */
  async runNow(job: string, provider?: string): Promise<boolean> {
    const cores = provider === undefined ? [...this.providers] : [this.#core(provider)];
    const [found, another] = cores.flatMap((core) => core.jobs.get(job) ?? []);
    if (found && !another) return await found.runNow();
    const known = cores.flatMap(({ jobs, name }) => Array.from(jobs.keys(), (key) => `"${key}" (provider "${name}")`));
    throw new LockConfigError(
      found
        ? `Job ${shown(job)} exists on several providers. Pass the name of one as the second argument to runNow(). The jobs are ${known.join(', ')}.`
        : `runNow() found no job ${shown(job)} in this application. Import the module that has it, and ScheduleModule.forRoot({ cronJobs: false }) if this process does not schedule jobs. ` +
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

  /** The calls in this process that are waiting for a lock. */
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
   * How long callers in this process have waited for busy locks since the application started. Returns one row per
   * template and provider, longest total time first, but at most 500 rows: the last one sums all
   * templates after the first 499, and its `template` is `null`.
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

/** The valid holders, oldest first. */
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
  throw new LockConfigError(`Lock provider "${core.name}" does not support ${what}: use a provider that does.`, {
    provider: core.name,
  });
}
