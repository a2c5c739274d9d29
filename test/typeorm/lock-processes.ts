import type { Clock } from '../../lib/api/clock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';

/** What a test takes for processes: each takes its locks by a provider of its own. */
export class LockProcesses {
  readonly #managers: LockManager[] = [];

  async start(provider: LockProvider, clock?: Clock): Promise<LockManager> {
    // A waiter is served within milliseconds, and within seconds on a busy machine.
    const defaults = { wait: '1m' };
    const providers = { sql: provider };
    const locks = new LockManager({ providers, namespace: 'test', clock, defaults, shutdownGrace: 0 });
    this.#managers.push(locks);
    await locks.start();
    return locks;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#managers.splice(0).map((manager) => manager.stop()));
  }
}
