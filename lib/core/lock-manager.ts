import { errorText } from '../api/cause.js';
import { LockConfigError } from '../api/errors.js';
import { isBusy } from '../api/is-busy.js';
import type { LockEvents } from '../api/lock-events.js';
import type { LockDefaults, LockOptions } from '../api/lock-options.js';
import type { Lock } from '../api/lock.js';
import type { Clock } from '../api/clock.js';
import { type LockLogger, silentLogger } from '../api/logger.js';
import { printable } from '../api/printable.js';
import { normalizeKeys, type LockKey } from '../key/lock-key.js';
import { type CallOptions, LockAcquirer } from './acquire/lock-acquirer.js';
import type { LockPlan } from './plan/lock-plan.js';
import { assertLockOptions, resolveSettings } from './plan/lock-settings.js';
import { LockEventPublisher } from './events/publisher.js';
import type { LockOrigin } from './events/subject.js';
import { runGuarded } from './hold/guarded-task.js';
import { type GrantedLock, runDetached, surroundingLocks } from './hold/granted-lock.js';
import { Contention } from './insight/contention.js';
import { LockOrder } from './insight/lock-order.js';
import { Lifecycle, stopping } from './lifecycle.js';
import { LockAdmin } from './lock-admin.js';
import { resolveManagerOptions, type LockManagerOptions } from './lock-manager-options.js';
import { MissingValues } from './missing-values.js';
import { Providers } from './providers.js';
import { systemClock, systemTimers } from './toolkit/clock.js';
import { detached } from './toolkit/detached.js';
import { assertTask } from './toolkit/arguments.js';
import { instanceIdOf } from './toolkit/instance-ids.js';
import { systemRandom, withPrefix } from './toolkit/random.js';
import { SuspensionDetector } from './toolkit/suspension.js';
import { WarnedPlaces } from './toolkit/warned-places.js';
import { withTimeout } from './toolkit/timing.js';

const DIRECT_CALL: LockOrigin = { method: null, template: null };

/**
 * The core without Nest: locks by key over any number of providers.
 *
 * The core guarantees that a task starts only while its lock is definitely held, that every lock is released however
 * the task ends, and that a loss is detected no later than the local deadline. Mutual exclusion itself is guaranteed by
 * the provider, under its own assumptions.
 */
export class LockManager {
  readonly events: LockEvents;
  /** Lets operators inspect and free locks. */
  readonly admin: LockAdmin;
  /** @internal */
  readonly missingValues: MissingValues;
  /** @internal */
  readonly order: LockOrder;
  /** @internal Whether jobs may run without a scheduler, as in a unit test that doesn't boot one. */
  readonly isForTests: boolean = false;
  readonly #providers: Providers;
  readonly #acquirer: LockAcquirer;
  readonly #lifecycle = new Lifecycle();
  readonly #default: string;
  readonly #defaults: Parameters<typeof resolveSettings>[1];
  readonly #grace: number;
  readonly #failFast: boolean;
  readonly #clock: Clock;
  /** The plan for all calls without options. */
  readonly #withoutOptions: LockPlan;
  readonly #stop = new AbortController();
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  /** Checks the options. Doesn't open any connections. @throws LockConfigError */
  constructor(options: LockManagerOptions) {
    const settings = resolveManagerOptions(options);
    const { namespace, instance, clock = systemClock, defaults = {} } = settings;
    const logger = onOneLine(settings.logger ?? silentLogger);
    this.#default = settings.default;
    this.#defaults = defaults;
    this.#grace = settings.shutdownGrace;
    this.#failFast = settings.failFast;
    this.#clock = clock;
    const events = new LockEventPublisher((error) => {
      logger.error(`A lock event listener failed: ${errorText(error)}`);
    });
    this.events = events;
    this.missingValues = new MissingValues(logger);
    const suspension = new SuspensionDetector(clock);
    const insight = { contention: new Contention(), order: new LockOrder(logger), warnedOf: new WarnedPlaces() };
    const source = settings.random ?? systemRandom();
    const id = instanceIdOf(source.id());
    const parts = {
      namespace,
      instance: { id, name: instance },
      ...{ clock, random: withPrefix(source, id), logger, events, suspension, insight },
    };
    // Runs detached, because a promise retains the async context that created it, and some provider promises live as
    // long as the application.
    this.#providers = detached(() => new Providers(settings.providers, parts));
    this.admin = new LockAdmin(this.#providers, settings.default, clock, insight.contention);
    this.order = insight.order;
    this.#acquirer = new LockAcquirer(this, this.#lifecycle, clock);
    // Reject invalid defaults now rather than at the first call.
    for (const name of this.#providers.names) this.plan({ provider: name });
    this.#withoutOptions = this.plan({});
  }

  /** @internal */
  get providerNames(): string[] {
    return this.#providers.names;
  }

  /**
   * @internal Aborts when {@link stop} is called. Use it for work that holds locks for as long as the application runs.
   */
  get stopping(): AbortSignal {
    return this.#stop.signal;
  }

  /**
   * Starts the providers and logs server settings that weaken the guarantee.
   *
   * @throws LockUnavailableError if a backend cannot be reached and `failFast` is true. All providers are then closed.
   */
  async start(): Promise<void> {
    if (this.#lifecycle.state !== 'new') {
      throw new LockConfigError('This LockManager has already been started or stopped. Create a new one.');
    }
    this.#lifecycle.state = 'starting';
    // Runs detached, because connections and reconnection attempts outlive the caller.
    return (this.#starting = detached(() => this.#connect()));
  }

  /** Acquires the lock. @throws LockBusyError if it is busy for the whole `wait`. */
  async acquire(key: LockKey, options?: LockOptions): Promise<Lock> {
    const plan = options === undefined ? this.#withoutOptions : this.plan(options);
    return await this.acquirePlanned(plan, key, options);
  }

  /** Acquires the lock if it is free (`wait` defaults to 0); otherwise, resolves to `null`. */
  async tryAcquire(key: LockKey, options: LockOptions = {}): Promise<Lock | null> {
    assertLockOptions(options);
    try {
      return await this.acquire(key, options.wait === undefined ? { ...options, wait: 0 } : options);
    } catch (error) {
      if (isBusy(error)) return null;
      throw error;
    }
  }

  /**
   * Runs `task` under the lock, then releases the lock, however the task ends. If a call that re-entered the lock is
   * still running, the lock stays held until that call ends.
   */
  withLock<T>(key: LockKey, task: (lock: Lock) => T | PromiseLike<T>, options?: LockOptions): Promise<T> {
    let plan: LockPlan;
    let acquired: Promise<GrantedLock>;
    try {
      assertTask('withLock()', task);
      plan = options === undefined ? this.#withoutOptions : this.plan(options);
      acquired = this.acquirePlanned(plan, key, options);
    } catch (error) {
      return Promise.reject(error);
    }
    return runGuarded(acquired, task, plan.settings.onLost);
  }

  /** @internal Like {@link acquire}, with options that have already been checked. @throws LockKeyError synchronously */
  acquirePlanned(plan: LockPlan, key: LockKey, options?: CallOptions): Promise<GrantedLock> {
    return this.#acquirer.acquire(normalizeKeys(key), plan, options);
  }

  /**
   * @internal Checks options against their provider. The plan can serve any number of calls.
   *
   * @throws LockConfigError
   */
  plan(options: LockOptions, origin: LockOrigin = DIRECT_CALL, reentrant?: LockDefaults['reentrant']): LockPlan {
    assertLockOptions(options);
    const core = this.#providers.get(options.provider ?? this.#default);
    return { core, settings: resolveSettings(options, this.#defaults, core, reentrant), origin };
  }

  /**
   * The innermost lock around the caller, or the innermost one with this key; `undefined` outside of a lock and after
   * its release.
   */
  current(key?: string): Lock | undefined {
    return surroundingLocks(this).find((lock) => key === undefined || lock.keys.includes(key));
  }

  /** Runs `task` outside of the caller's locks. */
  detached<T>(task: () => T): T {
    return runDetached(task);
  }

  /** Whether the key is held or retained (`minHold`). @throws LockConfigError if the provider does not support it */
  async isLocked(key: string, provider?: string): Promise<boolean> {
    return (await this.admin.inspect(key, provider)) !== null;
  }

  /**
   * Shuts down locking. Refuses new locks and waits up to `shutdownGrace` for holders to finish; they may still acquire
   * more locks. Then treats the remaining locks as lost and closes the backends. Never rejects.
   */
  stop(): Promise<void> {
    return (this.#stopping ??= this.#drainAndClose());
  }

  async #connect(): Promise<void> {
    try {
      await this.#providers.connect(this.#failFast);
    } catch (error) {
      await this.#providers.close();
      systemTimers.disarmIfIdle();
      throw error;
    }
    // stop() may have been called in the meantime.
    if (this.#lifecycle.state === 'starting') this.#lifecycle.state = 'running';
  }

  async #drainAndClose(): Promise<void> {
    this.#stop.abort();
    if (!this.#starting) {
      this.#lifecycle.state = 'stopped';
      return;
    }
    this.#lifecycle.state = 'draining';
    for (const { queues } of this.#providers) queues.dismiss('without-locks', stopping);
    // Keeps the process alive; otherwise, it could exit mid-drain without releasing locks.
    await withTimeout(this.#clock, this.#grace, Promise.allSettled([this.#starting, this.#idle()]));
    this.#lifecycle.state = 'stopped';
    for (const { queues, watchdog } of this.#providers) {
      queues.dismiss('all', stopping);
      watchdog.loseAll('shutdown');
    }
    await this.#providers.close();
    systemTimers.disarmIfIdle();
  }

  /**
   * Resolves when no locks are held. Checks again after each wait, because a holder may still acquire a lock on another
   * provider.
   */
  async #idle(): Promise<void> {
    const cores = [...this.#providers];
    while (cores.some(({ holders }) => !holders.isIdle)) await Promise.all(cores.map(({ holders }) => holders.idle()));
  }
}

/**
 * Escapes line breaks in messages, because keys may contain them, and ignores logger errors, which could otherwise
 * break a caller, such as a renewal.
 */
function onOneLine(logger: LockLogger): LockLogger {
  const on = (level: keyof LockLogger) => (message: string) => {
    try {
      logger[level](printable(message));
    } catch {
      // There is nowhere to report an error from the logger.
    }
  };
  return { debug: on('debug'), warn: on('warn'), error: on('error') };
}
