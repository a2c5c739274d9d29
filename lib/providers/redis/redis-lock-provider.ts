import type {
  AcquireRequest,
  Answer,
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
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { readOptions, serversOf, type RedisLockProviderOptions, type RedisSettings } from './redis-options.js';
import { Session } from './session.js';

/**
 * Locks on one Redis server (6.2 or later), on the master that Sentinel names, or on the masters of a Redis Cluster.
 *
 * Promised: mutual exclusion, shared locks, first come first served over all processes, a fencing token with every
 * grant, and a hand-off that takes one round trip, or none between waiters of one process who stand behind each other. Waiting
 * costs no polling: a process with waiters sends one command a second.
 *
 * Under the assumptions that the server keeps its data (`noeviction`, and AOF if it may restart), that a replica which is promoted while
 * a lock is held has that lock (`waitReplicas`; replication is asynchronous), and that the server's wall clock is not stepped. What happens
 * otherwise: two holders are possible, and the later one has the larger fencing token.
 */
export class RedisLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities = {
    shared: true,
    fair: true,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    queue: 'native',
  };
  readonly #settings: RedisSettings;
  #session: Session | undefined;
  #isStarted = false;
  #isStopped = false;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: RedisLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  async start(context: ProviderContext): Promise<void> {
    const { name } = context;
    if (this.#isStarted) {
      throw new LockConfigError(`Lock provider "${name}" was started before: make a new one.`, { provider: name });
    }
    this.#isStarted = true;
    const open = await serversOf(this.#settings);
    if (this.#isStopped) {
      throw new LockUnavailableError(`Lock provider "${name}" was stopped before it had started.`, { provider: name });
    }
    this.#session = new Session(context, open, this.#settings);
    await this.#session.connect();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#started().acquire(request);
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#started().renew(grant, lease);
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
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
    this.#isStopped = true;
    await this.#session?.close();
  }

  #started(): Session {
    if (this.#session) return this.#session;
    throw new LockConfigError('A RedisLockProvider was used before it was started.');
  }
}
