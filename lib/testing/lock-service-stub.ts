// By name, because tests replace the global one with a fake.
import { setImmediate } from 'node:timers';
import type { FactoryProvider } from '@nestjs/common';
import { LockManager } from '../core/lock-manager.js';
import {
  type AcquireRequest,
  type Grant,
  type LockCapabilities,
  type LockProvider,
  type BackendContext,
  type LockBackend,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../api/lock-provider.js';
import { Leadership } from '../recipes/leadership.js';
import type { LockInfo } from '../api/lock-info.js';
import { validUntil } from '../core/toolkit/validity.js';
import { getLockServiceToken } from '../nest/decorators/inject-lock-service.decorator.js';
import { LockService, type KeyContext } from '../nest/service/lock.service.js';
import { FakeClock } from './fake-clock.js';

/** What the stub replaces. */
export interface LockServiceStubOptions {
  /** Names of the providers that the code under test speaks of; the first is the default. */
  readonly providers?: readonly string[];
  /** The values for `#{ctx.name}`, as in the module's options. */
  readonly context?: KeyContext;
}

/**
 * Provides a `LockService` for unit tests: the real service and core, over locks that everybody gets at once and that
 * exclude nobody. Time stops for them, so no lease ends by itself.
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

/** A provider for Nest's `providers`, and the handle on the locks behind it. */
export class LockServiceStub implements FactoryProvider<Promise<LockService>> {
  readonly provide = LockService;
  /** The keys of all locks that were taken, in order. */
  readonly acquired: string[] = [];
  readonly #busy = new Set<string>();
  readonly #backends: StubBackend[] = [];

  /** The lock services on each of its `providers`, for `@InjectLockService(name)`: `providers: [stub, ...stub.named]`. */
  readonly named: readonly FactoryProvider<LockService>[];

  constructor(private readonly options: LockServiceStubOptions) {
    this.named = (options.providers ?? []).map((name) => ({
      provide: getLockServiceToken(name),
      useFactory: (service: LockService) => service.via(name),
      inject: [LockService],
    }));
  }

  readonly useFactory = async (): Promise<LockService> => {
    const { providers = ['stub'], context } = this.options;
    const provider: LockProvider = {
      createBackend: (backendContext) => {
        const backend = new StubBackend(backendContext, this.#busy, this.acquired);
        this.#backends.push(backend);
        return backend;
      },
    };
    const manager = new LockManager({
      providers: Object.fromEntries(providers.map((name) => [name, provider])),
      default: providers[0],
      clock: new FakeClock(),
    });
    await manager.start();
    const leadership = new StubLeadership(manager, this.#busy);
    return new LockService(manager, context, undefined, undefined, leadership);
  };

  /** From now on the key is busy, however long a caller would wait. */
  busy(key: string): void {
    this.#busy.add(key);
  }

  /** The key can be had again. */
  free(key: string): void {
    this.#busy.delete(key);
  }

  /**
   * Takes the key away from all that hold it, also from calls that were made just before: their signals abort, and they end with
   * `LockLostError`. Resolves when they have been notified.
   */
  async lose(key: string): Promise<void> {
    // A grant takes some turns of the microtask queue from the backend to the task.
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    for (const backend of this.#backends) backend.lose(key);
  }
}

/** Leads whatever it is asked for, unless the key is busy: nothing campaigns for `@OnlyLeader` in a unit test. */
class StubLeadership extends Leadership {
  constructor(
    private readonly locks: LockManager,
    private readonly busy: ReadonlySet<string>,
  ) {
    super(locks);
  }

  /** Waits while the key is busy, as a campaign does while another process leads. */
  override async run(...[key, task, plan, options]: Parameters<Leadership['run']>): Promise<void> {
    if (this.isLeader(key)) await super.run(key, task, plan, options);
    else await untilAborted(options?.signal);
  }

  override isLeader(key: string): boolean {
    return !this.busy.has(key);
  }

  override runIfLeader<T>(
    key: string,
    provider: string | undefined,
    work: () => T | PromiseLike<T>,
  ): Promise<T> | undefined {
    return this.isLeader(key) ? this.locks.withLock(key, work, { provider }) : undefined;
  }
}

function untilAborted(signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) resolve();
    signal?.addEventListener('abort', () => {
      resolve();
    });
  });
}

/** Locks that everybody gets immediately, and that exclude nobody. */
class StubBackend implements LockBackend {
  readonly capabilities: LockCapabilities = {
    shared: true,
    limits: true,
    fair: true,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
  };
  readonly #held = new Set<AcquireRequest>();
  #token = 0n;

  constructor(
    private readonly context: BackendContext,
    private readonly busy: ReadonlySet<string>,
    private readonly acquired: string[],
  ) {}

  connect(): Promise<void> {
    return Promise.resolve();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key, lease } = request;
    if (this.busy.has(key)) return Promise.resolve('busy');
    this.acquired.push(key);
    this.#held.add(request);
    this.#token += 1n;
    return Promise.resolve({ lease, fencingToken: this.#token, validUntil: this.#validUntil(lease) });
  }

  renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    return Promise.resolve(this.#held.has(request) ? { validUntil: this.#validUntil(lease) } : 'lost');
  }

  release(request: AcquireRequest): Promise<ReleaseOutcome> {
    return Promise.resolve(this.#held.delete(request) ? 'released' : 'lost');
  }

  inspect(key: string): Promise<LockInfo | null> {
    const held = [...this.#held].filter((request) => request.key === key);
    if (held.length === 0 && !this.busy.has(key)) return Promise.resolve(null);
    const [{ mode } = { mode: 'exclusive' as const }] = held;
    return Promise.resolve({
      ...{ key, state: 'held', mode, holders: Math.max(held.length, 1), waiters: 0 },
      ...{ expiresIn: null, fencingToken: this.#token },
    });
  }

  forceRelease(key: string): Promise<boolean> {
    return Promise.resolve(this.lose(key));
  }

  /** Answers whether anybody held it. */
  lose(key: string): boolean {
    const held = [...this.#held].filter((request) => request.key === key);
    for (const request of held) {
      this.#held.delete(request);
      request.lost();
    }
    return held.length > 0;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #validUntil(lease: number): number {
    return validUntil(this.context.clock.now(), lease);
  }
}
