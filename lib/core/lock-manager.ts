import { LockConfigError, LockTimeoutError, LockUnavailableError } from '../api/errors.js';
import { type LockEvent, type LockEvents } from '../api/lock-events.js';
import { LockEventPublisher } from './events/publisher.js';
import type { HeldLock, LockInfo, WaitingLock } from '../api/lock-info.js';
import type { LockDefaults, LockOptions } from '../api/lock-options.js';
import type { Lock } from '../api/lock.js';
import { normalizeKeys, type LockKey } from '../key/lock-key.js';
import type { ActiveProvider } from './active-provider.js';
import { ActiveProviders } from './active-providers.js';
import { after, promised } from './toolkit/answer.js';
import { systemClock } from './toolkit/clock.js';
import { type Clock } from '../api/clock.js';
import type { EngineParts } from './engine-parts.js';
import type { GrantedLock } from './hold/granted-lock.js';
import { runGuarded } from './hold/guarded-task.js';
import { resolveManagerOptions, type LockManagerOptions } from './lock-manager-options.js';
import type { LockOrigin, LockPlan } from './acquire/lock-plan.js';
import type { Answer } from '../api/lock-provider.js';
import { resolveSettings } from './acquire/lock-settings.js';
import { LockTaker } from './acquire/lock-taker.js';
import { silentLogger, type LockLogger } from '../api/logger.js';
import { runDetached, surroundingLocks } from './hold/owner-context.js';
import { systemRandom } from './toolkit/random.js';
import { nameOf } from './events/subject.js';
import { SuspensionDetector } from './toolkit/suspension.js';

const BY_HAND: LockOrigin = { method: null, template: null };

/**
 * The engine: locks by key over any number of providers, without Nest.
 *
 * It guarantees that a task under a lock starts only while the lock is surely held, that every lock is given back
 * however the task ends, and that a loss is known at the latest at the local deadline. Mutual exclusion itself is the
 * provider's promise, under that provider's assumptions.
 */
export class LockManager {
  readonly events: LockEvents;
  readonly #providers: ActiveProviders;
  readonly #taker: LockTaker;
  readonly #default: string;
  readonly #defaults: LockDefaults;
  readonly #grace: number;
  readonly #failFast: boolean;
  readonly #clock: Clock;
  readonly #logger: LockLogger;
  #state: 'new' | 'starting' | 'running' | 'draining' | 'stopped' = 'new';
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  /** Checks and stores; opens nothing. @throws LockConfigError */
  constructor(options: LockManagerOptions) {
    const { defaultProvider, namespace, maxWaiters, shutdownGrace, failFast } = resolveManagerOptions(options);
    this.#default = defaultProvider;
    this.#defaults = options.defaults ?? {};
    this.#grace = shutdownGrace;
    this.#failFast = failFast;
    this.#clock = options.clock ?? systemClock;
    this.#logger = options.logger ?? silentLogger;
    const events = new LockEventPublisher((error) => {
      this.#logger.error(`A listener of lock events failed: ${String(error)}`);
    });
    this.events = events;
    const parts: EngineParts = {
      namespace,
      clock: this.#clock,
      random: options.random ?? systemRandom(),
      logger: this.#logger,
      events,
      suspension: new SuspensionDetector(this.#clock),
      maxWaiters,
    };
    this.#providers = new ActiveProviders(options.providers, parts);
    this.#taker = new LockTaker(this, this.#clock, this.#logger, (subject) => {
      if (this.#state !== 'running') this.#assertAccepting(subject);
    });
    // Wrong defaults are found now rather than at the first call.
    for (const active of this.#providers) resolveSettings({}, this.#defaults, active);
  }

  /** Names of the providers. */
  get providerNames(): string[] {
    return this.#providers.names;
  }

  /**
   * Starts the providers and lets each look for what weakens its guarantee.
   *
   * @throws LockUnavailableError when a backend cannot be reached and `failFast` is on. Then nothing is left started.
   */
  async start(): Promise<void> {
    if (this.#state !== 'new') {
      throw new LockConfigError('This LockManager was started or stopped before: make a new one.');
    }
    this.#state = 'starting';
    return (this.#starting = this.#startAll());
  }

  /** Takes the lock. @throws LockTimeoutError when it was busy for the whole `wait`. */
  acquire(key: LockKey, options: LockOptions = {}): Promise<Lock> {
    return promised(() => this.acquirePlanned(this.plan(options), key, options.signal));
  }

  /** Takes the lock if it is free (`wait` defaults to 0); `null` when it is busy. */
  async tryAcquire(key: LockKey, options: LockOptions = {}): Promise<Lock | null> {
    const plan = this.plan(options.wait === undefined ? { ...options, wait: 0 } : options);
    try {
      return await this.#taker.take(normalizeKeys(key), plan, options.signal);
    } catch (error) {
      if (error instanceof LockTimeoutError) return null;
      throw error;
    }
  }

  /** Runs `task` under the lock, and releases it however the task ends. A nested call of the same key that still runs keeps it held. */
  withLock<T>(key: LockKey, task: (lock: Lock) => T | PromiseLike<T>, options: LockOptions = {}): Promise<T> {
    return promised(() => {
      const plan = this.plan(options);
      const lock = this.acquirePlanned(plan, key, options.signal);
      return after(lock, (granted) => runGuarded(granted, task, plan.settings.onLost));
    });
  }

  /** As {@link acquire}, for options that were checked before. */
  acquirePlanned(plan: LockPlan, key: LockKey, signal?: AbortSignal): Answer<GrantedLock> {
    return this.#taker.take(normalizeKeys(key), plan, signal);
  }

  /** Checks options against their provider, once for any number of calls. @throws LockConfigError */
  plan(options: LockOptions, origin: LockOrigin = BY_HAND): LockPlan {
    const active = this.#provider(options.provider);
    return { active, settings: resolveSettings(options, this.#defaults, active), origin };
  }

  /** The innermost lock around the caller, or that of a key; undefined outside of a lock, and after its release. */
  current(key?: string): Lock | undefined {
    return surroundingLocks(this).find((lock) => key === undefined || lock.keys.includes(key));
  }

  /** Runs `task` as a new owner, which holds none of the caller's locks. */
  detached<T>(task: () => T): T {
    return runDetached(task);
  }

  /** What the backend knows of the key, or `null` when it is free. @throws LockConfigError where the provider cannot tell. */
  async inspect(key: string, provider?: string): Promise<LockInfo | null> {
    const active = this.#provider(provider);
    return (
      (await active.inspect(oneKey(key))) ?? (active.capabilities.forceRelease ? null : notOffered(active, 'inspect'))
    );
  }

  /** Frees the key; a lock that is held is lost. Resolves to whether it was held or retained (`minHold`). */
  async forceRelease(key: string, provider?: string): Promise<boolean> {
    const active = this.#provider(provider);
    return (await active.forceRelease(oneKey(key))) ?? notOffered(active, 'forceRelease');
  }

  /** What this process holds. */
  held(): HeldLock[] {
    const now = this.#clock.now();
    const wallTime = this.#clock.wallTime();
    return [...this.#providers].flatMap((active) =>
      active.holds.valid.map((hold) => ({
        key: hold.key,
        provider: active.name,
        mode: hold.grant.mode,
        method: hold.subject.method,
        acquiredAt: new Date(wallTime - (now - hold.grantedAt)),
        fencingToken: hold.grant.fencingToken,
        remaining: hold.remaining(),
        entries: hold.entries,
      })),
    );
  }

  /** What this process waits for. */
  waiting(): WaitingLock[] {
    const now = this.#clock.now();
    return [...this.#providers].flatMap((active) =>
      Array.from(active.waiting, ({ subject, startedAt }) => ({
        key: subject.key,
        provider: active.name,
        mode: subject.mode,
        method: subject.method,
        waited: now - startedAt,
      })),
    );
  }

  /**
   * Stops: refuses new locks, lets holders finish for `shutdownGrace` (they may still take what they need), then takes
   * the rest away and stops the providers. Never rejects.
   */
  stop(): Promise<void> {
    return (this.#stopping ??= this.#drainAndStop());
  }

  async #startAll(): Promise<void> {
    try {
      await this.#providers.start(this.#failFast);
    } catch (error) {
      await this.#providers.stop();
      throw error;
    }
    // Unless it was stopped meanwhile.
    if (this.#state === 'starting') this.#state = 'running';
  }

  async #drainAndStop(): Promise<void> {
    const providers = [...this.#providers];
    if (!this.#starting) {
      this.#state = 'stopped';
      return;
    }
    this.#state = 'draining';
    for (const active of providers) active.dismissWaiters('first-comers', stopping);
    await this.#within(this.#grace, Promise.allSettled([this.#starting, allIdle(providers)]));
    this.#state = 'stopped';
    for (const active of providers) {
      active.dismissWaiters('all', stopping);
      active.holds.loseAll('shutdown');
    }
    await this.#providers.stop();
  }

  async #within(patience: number, work: Promise<unknown>): Promise<void> {
    let timer: object | undefined;
    // Keeps the process alive: it would otherwise end in the middle of the stop, and skip what comes after it.
    const over = new Promise<void>((resolve) => (timer = this.#clock.setTimer(resolve, patience, true)));
    await Promise.race([work, over]);
    if (timer) this.#clock.clearTimer(timer);
  }

  #provider(name = this.#default): ActiveProvider {
    return this.#providers.get(name);
  }

  #assertAccepting(subject: LockEvent): void {
    if (this.#state === 'new' || this.#state === 'starting') {
      throw new LockConfigError('LockManager was not started: await start() first.');
    }
    if (this.#state === 'draining' && this.#isHolding()) return;
    throw stopping({ subject });
  }

  /** Whether the caller runs under a lock that stands. */
  #isHolding(): boolean {
    return surroundingLocks(this).some((lock) => lock.isHeld());
  }
}

/** Resolves when none of them holds anything: a holder of one may still take what it needs from another. */
async function allIdle(providers: readonly ActiveProvider[]): Promise<void> {
  while (providers.some((active) => !active.holds.isIdle))
    await Promise.all(providers.map((active) => active.holds.idle()));
}

function oneKey(key: string): string {
  const [only] = normalizeKeys(key);
  return only ?? key;
}

function notOffered(active: ActiveProvider, what: string): never {
  throw new LockConfigError(`Lock provider "${active.name}" does not offer ${what}().`, { provider: active.name });
}

function stopping({ subject }: { readonly subject: LockEvent }): LockUnavailableError {
  return new LockUnavailableError(`${nameOf(subject)} was not acquired: the application is stopping.`, {
    key: subject.key,
    provider: subject.provider,
  });
}
