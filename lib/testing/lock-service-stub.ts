import type { FactoryProvider } from '@nestjs/common';
import type { Lock } from '../api/lock.js';
import type { LockMode } from '../api/lock-mode.js';
import type { LockDefaults, LossPolicy } from '../api/lock-options.js';
import type { CallOptions } from '../core/acquire/lock-acquirer.js';
import { type LockPlan, subjectOf } from '../core/plan/lock-plan.js';
import { busyError } from '../core/insight/refusals.js';
import { excludes, heldAlready } from '../core/acquire/re-entry.js';
import { recordText } from '../core/job-record.js';
import { type GrantedLock, reenterableLocks, surroundingLocks } from '../core/hold/granted-lock.js';
import { LockAdmin } from '../core/lock-admin.js';
import { LockManager } from '../core/lock-manager.js';
import { underAny, untilAborted } from '../core/toolkit/abort-listeners.js';
import { setImmediate } from '../core/toolkit/real-timers.js';
import type { LockManagerOptions } from '../core/lock-manager-options.js';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  LockCapabilities,
  LockProvider,
  RecordStore,
  ReleaseOptions,
  ReleaseOutcome,
} from '../api/lock-provider.js';
import { MemoryStore } from '../providers/memory/memory-store.js';
import { type Abilities, BackendInMemory, standInsFor } from './provider-in-memory.js';
import { Leadership } from '../recipes/leadership.js';
import type { Leader, LockInfo } from '../api/lock-info.js';
import { type LockKey, normalizeKeys } from '../key/lock-key.js';
import { LockService, type KeyContext } from '../nest/service/lock.service.js';
import { FakeClock } from './fake-clock.js';

/** The instance name of the application under test. */
const STUB = 'stub';

/** The parts of an application that the stub replaces. */
export interface LockServiceStubOptions {
  /**
   * The providers that the code under test refers to; the first is the default. A list of names gives each provider all
   * capabilities. An object maps each name to the provider it stands for, which is not connected, or to the
   * capabilities it lacks (`{ minHold: false }`). The stub then refuses what that provider refuses, with the same
   * error.
   */
  readonly providers?: readonly string[] | Readonly<Record<string, LockProvider | Partial<LockCapabilities>>>;
  /** The values for `#{ctx.name}`, as in the module's options. */
  readonly context?: KeyContext;
  /** The argument for option functions in decorators, as in the module's options. */
  readonly config?: unknown;
}

/**
 * A lock request, with all options that apply to it, including its class's options and the defaults. All times are in
 * ms.
 */
export interface StubCall {
  /** Sorted, without repetition. */
  readonly keys: readonly string[];
  readonly provider: string;
  /** The decorated method, or `null` for a call to `LockService`. */
  readonly method: string | null;
  readonly mode: LockMode;
  /** `undefined` except in mode `limited`. */
  readonly limit: number | undefined;
  /** `undefined` except in mode `limited`. */
  readonly weight: number | undefined;
  readonly wait: number;
  readonly lease: number;
  readonly maxHold: number;
  readonly minHold: number;
  readonly reentrant: NonNullable<LockDefaults['reentrant']>;
  readonly onLost: LossPolicy;
}

/**
 * Provides a `LockService` for unit tests: the real service and core, with locks that a call gets as soon as no other
 * call of the test holds them. Time stands still for these locks, so leases never expire and no wait times out.
 *
 * @example
 * ```ts
 * const locks = provideLockServiceStub();
 * const app = await Test.createTestingModule({ providers: [OrderService, locks] }).compile();
 *
 * await app.get(OrderService).pay({ id: 42 });
 * expect(locks.acquired).toEqual(['order:42']);
 *
 * locks.busy('order:42');
 * await expect(app.get(OrderService).pay({ id: 42 })).rejects.toThrow(LockBusyError);
 * ```
 */
export function provideLockServiceStub(options: LockServiceStubOptions = {}): LockServiceStub {
  return new LockServiceStub(options);
}

/** A provider for Nest's `providers`, and a handle to the locks behind it. */
export class LockServiceStub implements FactoryProvider<Promise<LockService>> {
  readonly provide = LockService;
  /** The keys of all locks that were acquired, in order. */
  readonly acquired: string[] = [];
  /** All lock calls, in order, including nested calls and calls that found the key busy. */
  readonly calls: StubCall[] = [];
  /** The busy keys. Each signal aborts when its key is freed. */
  readonly #busy = new Map<string, AbortController>();
  readonly #backends: StubBackend[] = [];
  readonly #providers: Readonly<Record<string, LockProvider>>;

  /** The stub's `LockAdmin`: `providers: [stub, stub.admin]`. */
  readonly admin: FactoryProvider<LockAdmin> = {
    provide: LockAdmin,
    useFactory: ({ manager }: LockService) => manager.admin,
    inject: [LockService],
  };

  /** @throws LockConfigError for providers that would make startup fail */
  constructor(private readonly options: LockServiceStubOptions) {
    this.#providers = this.#standIns(options.providers ?? ['stub']);
  }

  readonly useFactory = async (): Promise<LockService> => {
    const [first] = Object.keys(this.#providers);
    const options = { providers: this.#providers, default: first, clock: new FakeClock(), instance: STUB };
    const manager = new StubManager(options, this.calls);
    await manager.start();
    const leadership = new StubLeadership(manager, this.#busy);
    const service = new LockService(manager, this.options, undefined, undefined, leadership);
    return Object.assign(service, {
      onModuleDestroy: () => {
        leadership.end();
      },
    });
  };

  #standIns(providers: NonNullable<LockServiceStubOptions['providers']>): Readonly<Record<string, LockProvider>> {
    const standIn = (capabilities: Abilities): LockProvider => ({
      createBackend: (context) => {
        const backend = new StubBackend(context, capabilities, this.#busy, this.acquired);
        this.#backends.push(backend);
        return backend;
      },
    });
    const named: Exclude<typeof providers, readonly string[]> = isList(providers)
      ? Object.fromEntries(providers.map((name) => [name, {}]))
      : providers;
    const originals = Object.fromEntries(
      Object.entries(named).map(([name, each]) => [
        name,
        'createBackend' in each ? each : standIn({ ...EVERYTHING, ...each }),
      ]),
    );
    const [first] = Object.keys(originals);
    return standInsFor({ providers: originals, default: first, clock: new FakeClock() }, standIn);
  }

  /**
   * Makes the key busy from now on, no matter how long callers wait.
   *
   * @throws LockKeyError for a key that no call can request, such as a template: write `order:42` instead of
   * `order:#{order.id}`
   */
  busy(key: string): void {
    const name = asKey(key);
    if (!this.#busy.has(name)) this.#busy.set(name, new AbortController());
  }

  /** Frees the key again. @throws LockKeyError as {@link busy} */
  free(key: string): void {
    const name = asKey(key);
    const freed = this.#busy.get(name);
    this.#busy.delete(name);
    freed?.abort();
  }

  /**
   * Takes the key away from all holders, including calls made just before: their signals abort, and they fail
   * with `LockLostError`. Resolves when they have been notified.
   *
   * @throws LockKeyError as {@link busy}
   */
  async lose(key: string): Promise<void> {
    // A grant takes a few microtask turns to get from the backend to the task.
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    await Promise.all(this.#backends.map((backend) => backend.forceRelease(asKey(key))));
  }
}

/** Records the calls, all of which acquire through a plan. */
class StubManager extends LockManager {
  override readonly isForTests = true;

  constructor(
    options: LockManagerOptions,
    private readonly calls: StubCall[],
  ) {
    super(options);
  }

  override async acquirePlanned(plan: LockPlan, key: LockKey, options?: CallOptions): Promise<GrantedLock> {
    this.#record(key, plan);
    this.#assertNotNested(key, plan, options?.within);
    return super.acquirePlanned(plan, key, options);
  }

  /**
   * Rejects a call that, with a real provider, would wait for itself. The stub grants every lock, so nothing else would
   * reveal the mistake.
   */
  #assertNotNested(keys: LockKey, plan: LockPlan, within: Lock | undefined): void {
    const { core, settings } = plan;
    if (settings.reentrant !== 'explicit') return;
    const outer = surroundingLocks(this);
    const reenterable = reenterableLocks(this);
    for (const key of normalizeKeys(keys)) {
      // As in production, `within` is entered first, even if the caller is in another entry to the same lock.
      if (within?.provider === core.name && within.keys.includes(key)) continue;
      const { around } = heldAlready(key, core.name, outer, (lock) => reenterable.includes(lock));
      if (!around || !excludes(around.terms.mode, settings.mode)) continue;
      throw busyError(subjectOf(key, plan), settings.wait, around.subject, null, null);
    }
  }

  #record(key: LockKey, { core, settings, origin }: LockPlan): void {
    const { limited, ...others } = settings;
    const { limit, weight } = limited ?? {};
    this.calls.push({
      ...{ keys: normalizeKeys(key), provider: core.name, method: origin.method },
      ...{ ...others, limit, weight },
    });
  }
}

/** Leads every key that is not busy, because nothing campaigns for `@OnlyLeader` in a unit test. */
class StubLeadership extends Leadership {
  /** The locks of calls to {@link runIfLeader}. */
  readonly #terms = new WeakSet<Lock>();
  readonly #ended = new AbortController();

  constructor(
    private readonly locks: LockManager,
    private readonly busy: ReadonlyMap<string, AbortController>,
  ) {
    super(locks);
  }

  /** Waits while the key is busy, as a campaign does while another process leads. */
  override async run(...[key, task, plan, options]: Parameters<Leadership['run']>): Promise<void> {
    const freed = this.busy.get(key);
    const ends = [this.#ended.signal, options?.signal, freed?.signal].filter((each) => each !== undefined);
    if (freed) await underAny(ends, untilAborted);
    await super.run(key, task, plan, options);
  }

  override end(): void {
    this.#ended.abort();
    super.end();
  }

  override async leader(key: string, provider: string | undefined): Promise<Leader | null> {
    const leader = await super.leader(key, provider);
    return leader ?? { instance: STUB, since: null, fencingToken: null };
  }

  override isLeader(key: string): boolean {
    return !this.busy.has(key);
  }

  override runIfLeader<T>(key: string, plan: LockPlan, work: () => T | PromiseLike<T>): Promise<T> | undefined {
    const joined = super.runIfLeader(key, plan, work);
    if (joined || !this.isLeader(key)) return joined;
    const { name: provider } = plan.core;
    // As in a term, a call within another one re-enters its lock.
    const within = surroundingLocks(this.locks).find(
      (lock) => this.#terms.has(lock) && lock.provider === provider && lock.keys.includes(key),
    );
    const task = (lock: Lock) => {
      this.#terms.add(lock);
      return work();
    };
    return this.locks.withLock(key, task, { provider, ...(within && { within }) });
  }
}

/** The key as a caller would request it. @throws LockKeyError */
function asKey(key: string): string {
  return normalizeKeys(key)[0] ?? key;
}

function isList(value: object): value is readonly string[] {
  return Array.isArray(value);
}

const EVERYTHING: Abilities = {
  shared: true,
  limits: true,
  fair: true,
  fencing: true,
  lease: 'per-lock',
  minHold: true,
  forceRelease: true,
  ordered: true,
  records: true,
};

/** Locks that every caller gets immediately, unless the test made the key busy. */
class StubBackend extends BackendInMemory {
  constructor(
    context: BackendContext,
    capabilities: Abilities,
    private readonly busy: ReadonlyMap<string, AbortController>,
    private readonly acquired: string[],
  ) {
    super(context, new OpenStore(), capabilities, stubRecords(busy));
  }

  override acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    if (this.busy.has(request.key)) return Promise.resolve('busy');
    this.acquired.push(request.key);
    return super.acquire(request);
  }

  /** Time stands still, so `minHold` would never end. */
  override release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    return super.release(request, { ...options, keepFor: 0 });
  }

  override heldBy(): null {
    return null;
  }

  override async inspect(key: string): Promise<LockInfo | null> {
    const info = await super.inspect(key);
    const rival = { key, state: 'held', mode: 'exclusive', holders: 1, waiters: 0, fencingToken: null } as const;
    const found = info ?? (this.busy.has(key) ? { ...rival, instances: [] } : null);
    return found && { ...found, expiresIn: null, since: null };
  }
}

/** A store in which holders don't exclude anyone and tokens start at 1. */
class OpenStore extends MemoryStore {
  protected override admits(): boolean {
    return true;
  }

  override wallTime(): number {
    return 0;
  }
}

/**
 * Every run is the first, unless its key is busy, which means that another process has run it. Runs are never too
 * early.
 */
function stubRecords(busy: ReadonlyMap<string, AbortController>): RecordStore {
  const stored = (value: string | null) => Promise.resolve({ value, serverTime: LAST_TIME });
  return {
    read: (name) => stored(busy.has(name) ? RUN_ELSEWHERE : null),
    replace: (_name, _expected, next) => stored(next),
    async *list() {
      // The stub doesn't keep records.
    },
  };
}

const LAST_TIME = 8.64e15;
const RUN_ELSEWHERE = recordText({
  ...{ tick: LAST_TIME, run: '', state: 'ended', startedAt: 0, endedAt: 0 },
  ...{ instance: 'another one', attempt: 1, schedule: null },
});
