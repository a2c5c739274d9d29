import { Logger } from '@nestjs/common';
import { LockConfigError } from '../../api/errors.js';
import { LockManager } from '../../core/lock-manager.js';
import type { LockProvider } from '../../api/lock-provider.js';
import { MemoryLockProvider } from '../../providers/memory/memory-lock-provider.js';
import type { DistributedLockModuleOptions } from './module-options.js';

/**
 * The engine of an application, started: whoever is injected with it can use it at once.
 *
 * @param names the providers that the application wants to inject by name
 */
export async function createLockManager(
  options: DistributedLockModuleOptions,
  names: readonly string[],
): Promise<LockManager> {
  const logger = new Logger('DistributedLock');
  const { namespace, defaults, shutdownGrace, failFast, maxWaiters } = options;
  const manager = new LockManager({
    ...providersOf(options),
    namespace,
    defaults,
    shutdownGrace,
    failFast,
    maxWaiters,
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
  const known = manager.providerNames;
  const unknown = names.find((name) => !known.includes(name));
  // Before the start, since nothing stops an engine when the application fails to boot after it.
  if (unknown !== undefined) {
    throw new LockConfigError(
      `DistributedLockModule has no lock provider "${unknown}", which "names" speaks of: its providers are ${known.map((name) => `"${name}"`).join(', ')}.`,
    );
  }
  await manager.start();
  return manager;
}

/** The providers that an application has asked for, by name. @throws LockConfigError when it asks for two things at once */
export function providersOf({ provider, providers, default: chosen }: DistributedLockModuleOptions): {
  providers: Readonly<Record<string, LockProvider>>;
  default?: string | undefined;
} {
  if (provider && providers) {
    throw new LockConfigError('DistributedLockModule has both "provider" and "providers": give one of them.');
  }
  if (providers) return { providers, default: chosen };
  if (provider) return { providers: { [chosen ?? 'default']: provider } };
  if (process.env['NODE_ENV'] === 'production') {
    new Logger('DistributedLock').warn(
      'No lock provider is configured, so locks live in the memory of this process and exclude no other: pass "provider" to DistributedLockModule.forRoot().',
    );
  }
  return { providers: { [chosen ?? 'memory']: new MemoryLockProvider() } };
}
