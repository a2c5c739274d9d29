import type {
  AcquireRequest,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { LockConfigError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { connectionsOf } from '../redis/redis-options.js';
import { QuorumSession } from './quorum-session.js';
import { readRedlockOptions, type RedlockProviderOptions, type RedlockSettings } from './redlock-options.js';

/**
 * Locks by the votes of a majority of independent Redis servers: the Redlock algorithm, with a fencing token.
 *
 * Promised: mutual exclusion and growing fencing tokens while any minority of the nodes is down, frozen or cut off. A node
 * that does not answer delays nobody: a lock is decided as soon as a majority has spoken.
 *
 * Under the assumptions that no node loses its data within a lease (AOF with `appendfsync always`, or `delayedRestart`), that nodes are
 * independent, and that their wall clocks are not stepped within a lease. What happens otherwise: two holders are possible, and the
 * later one has the larger fencing token, as long as a majority of the nodes still has its counters.
 *
 * Not fair: waiters of different processes ask again after random pauses. Those of one process are served in their order.
 */
export class RedlockProvider implements LockProvider {
  readonly capabilities: LockCapabilities;
  readonly #settings: RedlockSettings;
  #session: QuorumSession | undefined;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: RedlockProviderOptions) {
    this.#settings = readRedlockOptions(options);
    this.capabilities = {
      shared: false,
      fair: false,
      fencing: true,
      lease: 'per-lock',
      maxLease: this.#settings.maxLease,
      minHold: true,
      forceRelease: true,
      queue: 'engine',
    };
  }

  async start(context: ProviderContext): Promise<void> {
    if (this.#session) {
      throw new LockConfigError(`Lock provider "${context.name}" was started before: make a new one.`, {
        provider: context.name,
      });
    }
    const connects = await Promise.all(this.#settings.nodes.map(connectionsOf));
    const connections = connects.map((connect) => connect());
    this.#session = new QuorumSession(context, connections, this.#settings);
    await this.#session.connect();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#started().acquire(request);
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#started().renew(grant, lease);
  }

  release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    return this.#started().release(holder, manner);
  }

  inspect(key: string): Promise<LockInfo | null> {
    return this.#started().inspect(key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#started().forceRelease(key);
  }

  check(): Promise<Finding[]> {
    return this.#started().check();
  }

  async stop(): Promise<void> {
    await this.#session?.close();
  }

  #started(): QuorumSession {
    if (this.#session) return this.#session;
    throw new LockConfigError('A RedlockProvider was used before it was started.');
  }
}
