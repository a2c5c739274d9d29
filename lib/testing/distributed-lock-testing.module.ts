import { type DynamicModule, Module } from '@nestjs/common';
import { LockManager } from '../core/lock-manager.js';
import { DistributedLockModule } from '../nest/module/distributed-lock.module.js';
import type { DistributedLockModuleOptions } from '../nest/options/module-options.js';
import { TestLocks, type TestLocksOptions } from './test-locks.js';

/**
 * The options of {@link DistributedLockTestingModule}: those of `DistributedLockModule`, plus the faults that a
 * test watches for.
 */
export type DistributedLockTestingModuleOptions = DistributedLockModuleOptions & TestLocksOptions;

/**
 * Replaces `DistributedLockModule` in tests, with the same services and options, and adds {@link TestLocks}. Providers
 * in the options are not connected: in-memory locks stand in for them, with the same names and capabilities, so a test
 * refuses what production refuses.
 *
 * @example
 * ```ts
 * const module = await Test.createTestingModule({
 *   imports: [DistributedLockTestingModule.forRoot()],
 *   providers: [OrderService],
 * }).compile();
 * const locks = module.get(TestLocks);
 *
 * await locks.busy('order:42');
 * await expect(module.get(OrderService).tryToPay({ id: 42 })).rejects.toThrow(LockBusyError);
 * ```
 */
@Module({})
export class DistributedLockTestingModule {
  /** @throws LockConfigError as {@link TestLocks} does */
  static forRoot(options: DistributedLockTestingModuleOptions = {}): DynamicModule {
    const { detectDeadlocks, ...ofModule } = options;
    const definition = DistributedLockModule.forRoot(ofModule);
    const locks = new TestLocks({ detectDeadlocks });
    return {
      ...definition,
      module: DistributedLockTestingModule,
      providers: [
        ...(definition.providers ?? []),
        { provide: TestLocks, useValue: locks },
        // Nest uses the last provider registered for a token.
        { provide: LockManager, useFactory: locks.manager.factory, inject: locks.manager.inject },
      ],
      exports: [...(definition.exports ?? []), TestLocks],
    };
  }
}
