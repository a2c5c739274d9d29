import type { FactoryProvider } from '@nestjs/common';
import { LockManager } from '../core/lock-manager.js';
import {
  type AcquireRequest,
  type Grant,
  type Holder,
  type LockCapabilities,
  type LockProvider,
  type ProviderContext,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../api/lock-provider.js';
import { validUntil } from '../core/toolkit/validity.js';
import { getLockServiceToken } from '../nest/decorators/inject-lock-service.decorator.js';
import { LockService, type KeyContext } from '../nest/service/lock.service.js';
import { FakeClock } from './fake-clock.js';

/** What the stub stands for. */
export interface LockServiceStubOptions {
  /** Names of the providers that the code under test speaks of; the first is the default. */
  readonly providers?: readonly string[];
  /** The values for `#{ctx.name}`, as in the module's options. */
  readonly context?: KeyContext;
}

/**
 * Provides a `LockService` for unit tests: the real service and engine, over locks that everybody gets at once and that
 * exclude nobody. Time stands still under them, so that no lease ends by itself.
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
 * await expect(app.get(OrderService).pay({ id: 42 })).rejects.toThrow(LockTimeoutError);
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
  readonly #backends: StubProvider[] = [];

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
    const backends = providers.map((name): [string, StubProvider] => [
      name,
      new StubProvider(this.#busy, this.acquired),
    ]);
    this.#backends.push(...backends.map(([, backend]) => backend));
    const manager = new LockManager({
      providers: Object.fromEntries(backends),
      default: providers[0],
      clock: new FakeClock(),
    });
    await manager.start();
    return new LockService(manager, context);
  };

  /** From now on the key is busy, however long a caller would wait. */
  busy(key: string): void {
    this.#busy.add(key);
  }

  /** The key can be had again. */
  free(key: string): void {
    this.#busy.delete(key);
  }

  /** Takes the key away from all that hold it: their signals abort, and they end with `LockLostError`. */
  lose(key: string): void {
    for (const backend of this.#backends) backend.lose(key);
  }
}

class StubProvider implements LockProvider {
  readonly capabilities: LockCapabilities = {
    shared: true,
    fair: true,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: false,
    queue: 'native',
  };
  readonly #holders = new Map<string, string>();
  #context: ProviderContext | undefined;
  #token = 0n;

  constructor(
    private readonly busy: ReadonlySet<string>,
    private readonly acquired: string[],
  ) {}

  start(context: ProviderContext): Promise<void> {
    this.#context = context;
    return Promise.resolve();
  }

  acquire({ key, holder, mode, lease }: AcquireRequest): Grant | 'busy' {
    if (this.busy.has(key)) return 'busy';
    this.acquired.push(key);
    this.#holders.set(holder, key);
    this.#token += 1n;
    return { key, holder, mode, lease, fencingToken: this.#token, validUntil: this.#validUntil(lease) };
  }

  renew({ holder }: Grant, lease: number): Promise<RenewOutcome> {
    return Promise.resolve(this.#holders.has(holder) ? { validUntil: this.#validUntil(lease) } : 'lost');
  }

  release({ holder }: Holder): ReleaseOutcome {
    return this.#holders.delete(holder) ? 'released' : 'lost';
  }

  lose(key: string): void {
    for (const [holder, held] of this.#holders) {
      if (held !== key) continue;
      this.#holders.delete(holder);
      this.#context?.emit({ type: 'lost', holder });
    }
  }

  stop(): Promise<void> {
    return Promise.resolve();
  }

  #validUntil(lease: number): number {
    return validUntil(this.#context?.clock.now() ?? 0, lease);
  }
}
