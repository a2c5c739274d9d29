import { LockConfigError } from '../../api/errors.js';
import { LockManager } from '../../core/lock-manager.js';
import type { LockProvider } from '../../api/lock-provider.js';
import { MemoryLockProvider } from '../../providers/memory/memory-lock-provider.js';
import { assertUsable } from './check-module-options.js';
import { logger } from '../options/module-logger.js';
import type { DistributedLockModuleOptions } from '../options/module-options.js';

/** Creates and starts an application's `LockManager`, so it is usable wherever it is injected. */
export async function createLockManager(options: DistributedLockModuleOptions): Promise<LockManager> {
  assertUsable(options);
  const { namespace, instance, defaults, shutdownGrace, failFast } = options;
  if (!options.provider && !options.providers) {
    logger.warn(
      'Locks are kept in memory and exclude only callers in this process. Pass "provider" to DistributedLockModule.forRoot(); new MemoryLockProvider() silences this warning.',
    );
  }
  const manager = new LockManager({
    ...providersOf(options),
    namespace,
    instance,
    defaults,
    shutdownGrace,
    failFast,
    logger: {
      debug: (message) => {
        logger.debug(message);
      },
      warn: (message) => {
        logger.warn(message);
      },
      error: (message) => {
        logger.error(message);
      },
    },
  });
  await manager.start();
  return manager;
}

/**
 * The providers that an application configures, by name.
 *
 * @throws LockConfigError if both "provider" and "providers" are set
 */
export function providersOf({ provider, providers, default: chosen }: DistributedLockModuleOptions): {
  providers: Readonly<Record<string, LockProvider>>;
  default?: string | undefined;
} {
  if (provider && providers) {
    throw new LockConfigError('DistributedLockModule has both "provider" and "providers": set only one.');
  }
  if (providers) return { providers, default: chosen };
  if (provider) return { providers: { [chosen ?? 'default']: provider } };
  return { providers: { [chosen ?? 'memory']: new MemoryLockProvider() } };
}
