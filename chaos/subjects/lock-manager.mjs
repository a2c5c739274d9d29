import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** Loads a file of the built library. */
export const load = (library, file) => import(pathToFileURL(join(library, file)).href);

/** How a worker's clients use this provider and the providers it is built on: through a LockManager. */
export async function managed({
  library,
  provider,
  providers = { main: provider },
  options = {},
  lifetime,
  instance,
  wait = 20_000,
}) {
  const { LockManager } = await load(library, 'core/lock-manager.js');
  const manager = new LockManager({ providers, default: 'main', instance, shutdownGrace: 1_000, failFast: false });
  const confirmedAt = new Map();
  manager.events.on('renewed', ({ key }) => confirmedAt.set(key, performance.now()));
  await manager.start();
  const { capabilities } = manager.plan({}).core;

  /** When a lock of this key, granted at that time, expires according to its last confirmation. */
  const endOf = (key, grantedAt) => Math.max(grantedAt, confirmedAt.get(key) ?? 0) + lifetime;

  return {
    manager,
    options,
    lifetime,
    wait,
    endOf,
    shared: capabilities.shared,
    // Include some exclusive locks, since these exclude all limited holders.
    limited: capabilities.limits ? { keys: ['c'], share: 0.95 } : undefined,
    /** @param keys one key or several */
    async acquire(keys, terms) {
      const lock = await manager.acquire(keys, { ...options, ...terms });
      const grantedAt = performance.now();
      // A process that was paused since the grant may find the lock lost.
      let isSignaled = lock.signal.aborted;
      lock.signal.addEventListener('abort', () => {
        isSignaled = true;
      });
      return {
        tokenOf: (key) => lock.fencingTokens.get(key) ?? null,
        release: () => lock.release(),
        /** Runs a task under the lock. */
        run: (task) => lock.run(task),
        /** Whether its signal has reported a loss. */
        isSignaled: () => isSignaled,
        claim: (key) => claimOf(lock, endOf(key, grantedAt)),
      };
    },
    /** How many locks the library itself believes it holds or waits for. */
    pending: () => manager.admin.held().length + manager.admin.waiting().length,
    stop: () => manager.stop(),
  };
}

/**
 * A holder's claim: whether it holds the lock, for how much longer, and by how many ms the lock has outlived its last
 * confirmation, according to this process's clock alone. The clock is read first, so that a pause in between can't
 * cause a false accusation.
 */
export function claimOf(lock, end) {
  const overdue = Math.round(performance.now() - end);
  const remaining = lock.remaining();
  const held = lock.isHeld();
  return { held, remaining: held ? remaining : 0, overdue };
}
