import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** Loads a file of the built library. */
export const load = (library, file) => import(pathToFileURL(join(library, file)).href);

/** How the clients of a worker use this provider, and those that it is built on: through a LockManager. */
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

  /** Until when a lock of this key lasts that was granted at this time, by its last confirmation. */
  const endOf = (key, grantedAt) => Math.max(grantedAt, confirmedAt.get(key) ?? 0) + lifetime;

  return {
    manager,
    options,
    lifetime,
    wait,
    endOf,
    shared: capabilities.shared,
    // Some exclusive locks in between, since these exclude all limited holders.
    limited: capabilities.limits ? { keys: ['c'], share: 0.95 } : undefined,
    /** @param keys a key, or several */
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
        /** Runs a task under it. */
        run: (task) => lock.run(task),
        /** Whether its signal has reported a loss. */
        isSignaled: () => isSignaled,
        claim: (key) => claimOf(lock, endOf(key, grantedAt)),
      };
    },
    /** How many locks the library itself believes to hold or to wait for. */
    pending: () => manager.admin.held().length + manager.admin.waiting().length,
    stop: () => manager.stop(),
  };
}

/**
 * What a holder claims: whether it holds the lock, for how much longer, and by how many ms the lock had outlived its last
 * confirmation, by the clock of this process alone. That clock is read first, so that a pause in between cannot accuse anybody.
 */
export function claimOf(lock, end) {
  const overdue = Math.round(performance.now() - end);
  const remaining = lock.remaining();
  const held = lock.isHeld();
  return { held, remaining: held ? remaining : 0, overdue };
}
