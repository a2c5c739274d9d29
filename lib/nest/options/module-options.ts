import { ConfigurableModuleBuilder } from '@nestjs/common';
import type { ConfiguredDuration } from '../../api/duration.js';
import type { LockDefaults } from '../../api/lock-options.js';
import type { LockProvider } from '../../api/lock-provider.js';
import type { KeyContext } from '../service/lock.service.js';

/** The options of `DistributedLockModule`. */
export interface DistributedLockModuleOptions {
  /**
   * The backend, if there is only one. Default: `MemoryLockProvider`, whose locks exclude only callers in this process.
   */
  provider?: LockProvider;
  /**
   * The backends by name, if there are several. If so, set `default` and omit `provider`. A name consists of 1 to
   * 64 characters from `A-Za-z0-9_-`.
   */
  providers?: Readonly<Record<string, LockProvider>>;
  /** Name of the provider for calls that do not specify one. */
  default?: string;
  /** Prefix of every key in every backend: `[A-Za-z0-9_.-]`, 1 to 64 characters. Default `lock`. */
  namespace?: string;
  /**
   * The name that identifies this application in `LockAdmin.list()`: 1 to 100 printable ASCII characters, such as a pod
   * name. Default: the host name and the process id. A non-ASCII host name is escaped as in a URL.
   */
  instance?: string | undefined;
  /** Defaults for calls and methods that don't set an option. */
  defaults?: LockDefaults | undefined;
  /** The values for `#{ctx.name}` in key templates, such as the current request's tenant. */
  context?: KeyContext | undefined;
  /**
   * The argument for option functions in decorators, such as the application's `ConfigService`:
   * `@DistributedLock(key, (config: ConfigService) => ({ lease: config.get('LOCK_LEASE') }))`. The functions are called
   * once, at startup.
   */
  config?: unknown;
  /**
   * `{ http: { busy } }`: the HTTP status of a busy lock, 423 by default. `false` leaves every `LockError` to the
   * application's own filters.
   */
  mapErrors?: false | { http?: { busy?: number } } | undefined;
  /**
   * How long shutdown waits for holders to finish, in ms, at most 24.8 days. Default 7 s: Docker kills a
   * container after 10 s, and the last releases may take 2 s.
   */
  shutdownGrace?: ConfiguredDuration | undefined;
  /** Whether startup fails if a backend cannot be reached. Default true. */
  failFast?: boolean | undefined;
}

export const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } =
  new ConfigurableModuleBuilder<DistributedLockModuleOptions>({ moduleName: 'DistributedLock' })
    .setClassMethodName('forRoot')
    .setFactoryMethodName('createDistributedLockOptions')
    .build();
