import { LockConfigError } from '../../api/errors.js';
import { LockManager } from '../../core/lock-manager.js';
import type { LockManagerOptions } from '../../core/lock-manager-options.js';
import { MemoryLockProvider } from '../../providers/memory/memory-lock-provider.js';
import { assertUsable } from './check-module-options.js';
import { logger } from '../options/module-logger.js';
import type { DistributedLockModuleOptions } from '../options/module-options.js';

/** Creates and starts an application's `LockManager`, so it is usable wherever it is injected. */
export async function createLockManager(options: DistributedLockModuleOptions): Promise<LockManager> {
  const settings = managerOptionsOf(options);
  if (!options.provider && !options.providers) {
    logger.warn(
      'Locks are kept in memory and exclude only callers in this process. Pass "provider" to DistributedLockModule.forRoot(); new MemoryLockProvider() silences this warning.',
    );
  }
  const manager = new LockManager({ ...settings, logger });
  await manager.start();
  return manager;
}

/**
 * The options that the core takes, with the application's providers by name.
 *
 * @throws LockConfigError for options that the types reject, or if both "provider" and "providers" are set
 */
export function managerOptionsOf(options: DistributedLockModuleOptions): LockManagerOptions {
  assertUsable(options);
  const { provider, providers, default: chosen, namespace, instance, defaults, shutdownGrace, failFast } = options;
  const others = { namespace, instance, defaults, shutdownGrace, failFast };
  if (provider && providers) {
    throw new LockConfigError('DistributedLockModule has both "provider" and "providers": set only one.');
  }
  if (providers) return { ...others, providers, default: chosen };
  if (provider) return { ...others, providers: { [chosen ?? 'default']: provider } };
  return { ...others, providers: { [chosen ?? 'memory']: new MemoryLockProvider() } };
}
