import { AssertionError } from 'node:assert';

import { LockManager } from '../core/lock-manager.js';
import { flag, type OptionTable, read } from '../core/toolkit/options.js';
import type { Lock } from '../api/lock.js';
import { managerOptionsOf } from '../nest/module/lock-manager.factory.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from '../nest/options/module-options.js';
import { FakeClock } from './fake-clock.js';
import { ProviderInMemory, standInsFor } from './provider-in-memory.js';

/** The faults that a test watches for. */
export interface TestLocksOptions {
  /**
   * Whether a call rejects with `LockDeadlockError` if the application has previously nested its locks in the opposite
   * order, so two callers could wait for each other. Nothing is acquired. In production, this logs a
   * warning. Default false.
   */
  readonly detectDeadlocks?: boolean | undefined;
}

const OPTIONS = { detectDeadlocks: flag().or(false) } satisfies OptionTable<TestLocksOptions>;

/**
 * The locks of an application under test, and ways for the test to disrupt them. They are real locks from the real
 * core, kept in this process's memory. Each provider of the application keeps its name and capabilities, so a test
 * refuses what production refuses. Time stands still: no wait, lease, or `minHold` ends until `clock.advance()` is
 * called.
 *
 * Features that only one backend has, such as a row lock's transaction, are missing.
 */
export class TestLocks {
  /** Starts at the current time, so a run that is due now (`runOnce()` with `due`) is not in the future. */
  readonly clock = new FakeClock(Date.now());
  readonly #others = new Map<string, Lock>();
  #application: LockManager | undefined;
  #rival: LockManager | undefined;
  readonly #detectsDeadlocks: boolean;

  /** @throws LockConfigError for an option that is neither true nor false */
  constructor(options: TestLocksOptions = {}) {
    this.#detectsDeadlocks = read({ name: 'TestLocks' }, options, OPTIONS).detectDeadlocks;
  }

  /**
   * For an application that imports `DistributedLockModule` itself: the backends in its options are never started.
   *
   * @example
   * ```ts
   * const locks = new TestLocks();
   * const module = await Test.createTestingModule({ imports: [AppModule] })
   *   .overrideProvider(LockManager).useFactory(locks.manager)
   *   .compile();
   * ```
   */
  readonly manager = {
    factory: (options: DistributedLockModuleOptions): Promise<LockManager> => this.#start(options),
    inject: [MODULE_OPTIONS_TOKEN],
  };

  /**
   * Takes the key as another process would, and keeps it until `free()` is called.
   *
   * @throws AssertionError if it is held
   */
  async busy(key: string, provider?: string): Promise<void> {
    const lock = await this.#started(this.#rival).tryAcquire(key, { provider });
    if (!lock && this.#others.has(`${this.#nameOf(provider)}:${key}`)) {
      throw new AssertionError({ message: `Lock "${key}" is busy: busy() already holds it, so call free() first.` });
    }
    if (!lock) this.#fail(key, 'to be free so busy() can take it');
    this.#others.set(`${lock.provider}:${key}`, lock);
  }

  /** Releases the key that `busy()` took. The first waiter gets it. */
  async free(key: string, provider?: string): Promise<void> {
    const name = `${this.#nameOf(provider)}:${key}`;
    await this.#others.get(name)?.release();
    this.#others.delete(name);
  }

  /**
   * Takes the key away from the application: the holder's signal aborts, and its task fails with `LockLostError`.
   *
   * @throws AssertionError if it is not held
   */
  async lose(key: string, provider?: string): Promise<void> {
    this.expectLocked(key, provider);
    // Does not use forceRelease(), which some providers do not support.
    await this.#started(this.#application).plan({ provider }).core.queues.forceRelease(key);
  }

  /** @throws AssertionError unless the application holds the key now */
  expectLocked(key: string, provider?: string): void {
    if (!this.#holds(key, provider)) this.#fail(key, 'to be locked');
  }

  /** @throws AssertionError if the application holds the key now */
  expectUnlocked(key: string, provider?: string): void {
    if (this.#holds(key, provider)) this.#fail(key, 'not to be locked');
  }

  async #start(options: DistributedLockModuleOptions): Promise<LockManager> {
    const asked = managerOptionsOf(options);
    const { namespace, defaults, default: chosen } = asked;
    const providers = standInsFor({ ...asked, clock: this.clock }, (abilities) => new ProviderInMemory(abilities));
    const shared = { providers, namespace, clock: this.clock, default: chosen };
    const application = new TestLockManager({ ...shared, defaults });
    if (this.#detectsDeadlocks) application.order.refuseOppositeOrders();
    const rival = new LockManager(shared);
    await Promise.all([application.start(), rival.start()]);
    [this.#application, this.#rival] = [application, rival];
    return application;
  }

  #nameOf(provider: string | undefined): string {
    return this.#started(this.#application).plan({ provider }).core.name;
  }

  #holds(key: string, provider: string | undefined): boolean {
    const name = this.#nameOf(provider);
    return this.#started(this.#application)
      .admin.held()
      .some((held) => held.key === key && held.provider === name);
  }

  #started(manager: LockManager | undefined): LockManager {
    if (manager) return manager;
    throw new Error('These TestLocks do not belong to an application yet: compile the testing module first.');
  }

  #fail(key: string, wanted: string): never {
    const held = this.#started(this.#application).admin.held();
    const heldKeys = held.map((each) => `"${each.key}" (provider "${each.provider}")`).join(', ');
    throw new AssertionError({
      message: `Expected lock "${key}" ${wanted}; the application holds ${heldKeys || 'none'}.`,
    });
  }
}

/** A manager that stops immediately, because its clock stands still and a test may leave locks behind. */
class TestLockManager extends LockManager {
  override readonly isForTests = true;
  readonly #clock: FakeClock;

  constructor(options: ConstructorParameters<typeof LockManager>[0] & { readonly clock: FakeClock }) {
    super({ ...options, shutdownGrace: 0 });
    this.#clock = options.clock;
  }

  override stop(): Promise<void> {
    const stopping = super.stop();
    void this.#clock.advance(0);
    return stopping;
  }
}
