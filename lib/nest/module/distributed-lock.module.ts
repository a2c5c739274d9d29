import { type ConfigurableModuleAsyncOptions, type DynamicModule, Module, type Provider } from '@nestjs/common';
import { APP_INTERCEPTOR, ApplicationConfig, HttpAdapterHost } from '@nestjs/core';
import { LockAdmin } from '../../core/lock-admin.js';
import { LockManager } from '../../core/lock-manager.js';
import { anything, type OptionTable, read } from '../../core/toolkit/options.js';
import { bootingServices } from '../service/service-slot.js';
import { assertNoProvider } from './check-module-options.js';
import { DistributedLockCoreModule, ModuleLifecycle } from './module-lifecycle.js';
import { LockErrorFilter } from '../transports/lock-error.filter.js';
import { LockRequestInterceptor } from '../transports/lock-request.interceptor.js';
import { createLockManager } from './lock-manager.factory.js';
import { LockService } from '../service/lock.service.js';
import {
  ConfigurableModuleClass,
  type DistributedLockModuleOptions,
  MODULE_OPTIONS_TOKEN,
} from '../options/module-options.js';

/**
 * Locks for an application: `LockService`, `LockAdmin`, and what `@DistributedLock` needs. Import it once, in the root
 * module. It starts the providers before Nest injects them anywhere, and stops them after the last shutdown hook.
 */
@Module({})
export class DistributedLockModule {
  /**
   * Without options, locks are kept in this process's memory.
   *
   * @example
   * ```ts
   * DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url: 'redis://localhost:6379' }) })
   * ```
   * @throws LockConfigError at once if given a provider as options, or at startup for other invalid options
   */
  static forRoot(options: DistributedLockModuleOptions = {}): DynamicModule {
    assertNoProvider(options);
    return withLocks(ConfigurableModuleClass.forRoot(options));
  }

  /**
   * Takes options from `useFactory`, `useClass`, or `useExisting`.
   *
   * @example
   * ```ts
   * DistributedLockModule.forRootAsync({
   *   inject: [ConfigService],
   *   useFactory: (config: ConfigService) => ({
   *     provider: new RedisLockProvider({ url: config.getOrThrow('REDIS_URL') }),
   *   }),
   * })
   * ```
   * @throws LockConfigError at boot
   */
  static forRootAsync(
    options: ConfigurableModuleAsyncOptions<DistributedLockModuleOptions, 'createDistributedLockOptions'>,
  ): DynamicModule {
    read({ name: 'DistributedLockModule.forRootAsync()' }, options, ASYNC_OPTIONS);
    return withLocks(ConfigurableModuleClass.forRootAsync(options));
  }
}

const ASYNC_OPTIONS = {
  imports: anything(),
  inject: anything(),
  useFactory: anything(),
  useClass: anything(),
  useExisting: anything(),
  provideInjectionTokensFrom: anything(),
} satisfies OptionTable<ConfigurableModuleAsyncOptions<DistributedLockModuleOptions, 'createDistributedLockOptions'>>;

function withLocks(definition: DynamicModule): DynamicModule {
  return {
    ...definition,
    module: DistributedLockModule,
    global: true,
    imports: [...(definition.imports ?? []), DistributedLockCoreModule],
    providers: [...(definition.providers ?? []), ...PROVIDERS],
    exports: [LockService, LockAdmin, LockRequestInterceptor, MODULE_OPTIONS_TOKEN],
  };
}

const PROVIDERS: Provider[] = [
  { provide: LockManager, useFactory: createLockManager, inject: [MODULE_OPTIONS_TOKEN] },
  {
    provide: LockService,
    useFactory: (manager: LockManager, options: DistributedLockModuleOptions) => {
      const service = new LockService(manager, options);
      bootingServices.add(service);
      return service;
    },
    inject: [LockManager, MODULE_OPTIONS_TOKEN],
  },
  { provide: LockAdmin, useFactory: ({ admin }: LockManager) => admin, inject: [LockManager] },
  ModuleLifecycle,
  LockRequestInterceptor,
  { provide: APP_INTERCEPTOR, useExisting: LockRequestInterceptor },
  {
    provide: LockErrorFilter,
    useFactory: (options: DistributedLockModuleOptions, host: HttpAdapterHost, application: ApplicationConfig) => {
      const filter = new LockErrorFilter(options, host);
      // Nest tries global filters from the last to the first, and adds the application's filters later, so this filter
      // is the last resort.
      if (options.mapErrors !== false) application.addGlobalFilter(filter);
      return filter;
    },
    inject: [MODULE_OPTIONS_TOKEN, HttpAdapterHost, ApplicationConfig],
  },
];
