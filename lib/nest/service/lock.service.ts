import type { LockEvents } from '../../api/lock-events.js';
import type { Leader } from '../../api/lock-info.js';
import type { LockOptions } from '../../api/lock-options.js';
import type { Lock } from '../../api/lock.js';
import type { LockKey } from '../../key/lock-key.js';
import type { LockManager } from '../../core/lock-manager.js';
import { assertTask, madeByNest } from '../../core/toolkit/arguments.js';
import type { LeaderTerm } from '../../recipes/campaign.js';
import { Leadership, planCampaign, type RunAsLeaderOptions } from '../../recipes/leadership.js';
import { type RunDueOptions, runOnce, type RunOnceOptions, type RunOnceResult } from '../../recipes/run-once.js';
import { Scheduler } from './scheduler.js';

/** The values for `#{ctx.name}` in key templates. */
export type KeyContext = Readonly<Record<string, () => string | number | bigint | boolean>>;

/** An application's values for its decorators. */
export interface ApplicationValues {
  readonly context?: KeyContext | undefined;
  readonly config?: unknown;
}

/**
 * Manual control over locks. Inject it anywhere: `DistributedLockModule` is global.
 *
 * The provider guarantees the lock. This service also ensures that every lock is released, that a task starts only
 * while its lock is certain to be held, and that you learn of a loss no later than the local deadline.
 */
export class LockService {
  /** @internal */
  readonly scheduler = new Scheduler();
  readonly #siblings: Map<string, LockService>;

  /** @internal */
  constructor(
    /** @internal */
    readonly manager: LockManager = madeByNest('LockService'),
    private readonly values: ApplicationValues = {},
    private readonly provider?: string,
    siblings = new Map<string, LockService>(),
    /** @internal */
    readonly leadership = new Leadership(manager),
  ) {
    this.#siblings = siblings;
  }

  /** @internal */
  get context(): KeyContext {
    return this.values.context ?? {};
  }

  /** @internal */
  get config(): unknown {
    return this.values.config;
  }

  /**
   * Acquires the lock.
   *
   * @throws LockBusyError if the lock was busy for the whole `wait` (default 5 s).
   * @throws LockUnavailableError if the backend is down or the outcome is unknown.
   * @throws LockKeyError, LockConfigError, LockDeadlockError, or LockCapacityError for calls that can never work.
   */
  acquire(key: LockKey, options?: LockOptions): Promise<Lock> {
    this.manager.missingValues.check(key);
    return this.manager.acquire(key, this.#complete(options));
  }

  /**
   * Acquires the lock if it is free (`wait` defaults to 0). Resolves to `null` if it is busy. Otherwise, throws like
   * {@link acquire}.
   */
  tryAcquire(key: LockKey, options?: LockOptions): Promise<Lock | null> {
    this.manager.missingValues.check(key);
    return this.manager.tryAcquire(key, this.#complete(options));
  }

  /**
   * Runs `task` under the lock, which is released however the task ends. The task's own value or error passes through.
   *
   * A nested call for the same key re-enters the lock if you pass the lock on: under `lock.run()`, or with
   * `{ within: lock }`. Await the nested call: the lock stays held while it runs, even after the outer call resolves.
   *
   * @throws LockLostError if the lock was lost before the task ended (see `onLost`); otherwise, the same errors as
   * {@link acquire}.
   */
  withLock<T>(key: LockKey, task: (lock: Lock) => T | PromiseLike<T>, options?: LockOptions): Promise<T> {
    this.manager.missingValues.check(key);
    return this.manager.withLock(key, task, this.#complete(options));
  }

  /**
   * Runs `task` once in the whole fleet: the process that gets the lock runs it, and the others do not wait. Use this
   * for jobs that you schedule at run time; for a method, use `@RunOnce`.
   *
   * With `due`, the run belongs to that time, and only one process starts it, however far apart their calls are.
   * With `minHold`, the key stays locked for that time instead; it must be longer than the gap between the calls and
   * shorter than the period. Pass one of the two.
   *
   * @example `locks.runOnce('report', () => send(), { due: new Date(scheduledTime) })`
   * @returns `{ ran: true, value }`, or `{ ran: false }` if a run for this or a later time has already been started, if
   * another process ran it within `minHold` ms, or if one is running it now. The `skipped` event gives the reason. A
   * failed task is not repeated
   * @throws LockUnavailableError if the backend is down: then no process runs it. If the start isn't acknowledged
   * within 5 s, the run may still count as started. LockConfigError for a `minHold` that the provider cannot keep, and
   * for `due` on a provider without records. Otherwise, the same errors as {@link withLock}, but never LockBusyError
   * for this lock
   */
  runOnce<T>(
    key: LockKey,
    task: (lock: Lock) => T | PromiseLike<T>,
    options: (RunOnceOptions & { due?: undefined }) | (RunDueOptions & { minHold?: undefined }),
  ): Promise<RunOnceResult<T>> {
    this.manager.missingValues.check(key);
    const { provider = this.provider } = { ...options };
    return runOnce(this.manager, key, task, { ...options, provider });
  }

  /**
   * Campaigns for the key and runs `task` whenever this process is elected. After a loss or the end of the task, it
   * campaigns again after a random pause of up to a second, or up to 30 s if the task keeps ending early. One call
   * never runs two tasks at once: after a loss, the campaign waits for the old task to end. While the backend
   * is down, it keeps retrying.
   *
   * Resolves once `signal` aborts or the application shuts down, after the task has ended and the lock has been
   * released.
   *
   * @param task must end when `term.signal` aborts; its errors after that are ignored
   * @throws what `task` throws while this process leads; LockConfigError, LockKeyError, or LockDeadlockError for calls
   * that can never work. Never LockBusyError or LockUnavailableError for this lock.
   */
  async runAsLeader(
    key: string,
    task: (term: LeaderTerm) => PromiseLike<unknown>,
    options: RunAsLeaderOptions = {},
  ): Promise<void> {
    this.manager.missingValues.check(key);
    const { provider = this.provider, signal } = options;
    assertTask('runAsLeader()', task);
    const plan = planCampaign(this.manager, { ...options, provider }, 'runAsLeader()');
    await this.leadership.run(key, task, plan, { signal });
  }

  /**
   * Whether this process leads the key now, through a campaign of `runAsLeader`, `@RunAsLeader` or `@OnlyLeader`.
   * Checks whether the lock is valid, without sending a request to the backend. The result may be outdated by
   * the time you use it, so send the fencing token along with any write.
   */
  isLeader(key: string): boolean {
    return this.leadership.isLeader(key, this.provider);
  }

  /**
   * The key's leader in the whole fleet: the lock's holder, or `null` while the lock is free. This call sends a request
   * to the backend, so it works in a process that does not campaign. The result may be outdated on arrival.
   *
   * @throws LockConfigError if the provider does not know (row and advisory locks of SQL); LockUnavailableError if the
   * backend is down; LockKeyError for an invalid key
   */
  leader(key: string): Promise<Leader | null> {
    return this.leadership.leader(key, this.provider);
  }

  /**
   * Whether the key is held, or retained (`minHold`). The result may be outdated on arrival, so to do something only
   * if the key is free, use {@link tryAcquire}.
   *
   * @throws LockConfigError if the provider does not know (row and advisory locks of SQL); LockUnavailableError if the
   * backend is down
   */
  isLocked(key: string): Promise<boolean> {
    return this.manager.isLocked(key, this.provider);
  }

  /**
   * The innermost lock around the caller, or the innermost lock on `key`. `undefined` outside a lock or after its
   * release.
   */
  current(key?: string): Lock | undefined {
    return this.manager.current(key);
  }

  /** Runs `task` as a new owner, without the caller's locks. Use this for work that outlives the caller. */
  detached<T>(task: () => T): T {
    return this.manager.detached(task);
  }

  /** This service for another provider; always the same instance. @throws LockConfigError for an unknown name. */
  via(provider: string): LockService {
    let sibling = this.#siblings.get(provider);
    if (!sibling) {
      // Rejects an unknown name.
      this.manager.plan({ provider });
      sibling = new LockService(this.manager, this.values, provider, this.#siblings, this.leadership);
      this.#siblings.set(provider, sibling);
    }
    return sibling;
  }

  /** This application's lock events, from all providers. */
  get events(): LockEvents {
    return this.manager.events;
  }

  #complete(options: LockOptions | undefined): LockOptions | undefined {
    if (this.provider === undefined || options?.provider !== undefined) return options;
    return { ...options, provider: this.provider };
  }
}
