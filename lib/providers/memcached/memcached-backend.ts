import type {
  AcquireRequest,
  BackendContext,
  Diagnostic,
  Grant,
  LockBackend,
  LockCapabilities,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { nameOrIdOf } from '../../core/toolkit/instance-ids.js';
import { isRefusal, isUnavailable } from '../../core/toolkit/retryable.js';
import { validUntil } from '../../core/toolkit/validity.js';
import type { LockInfo } from '../../api/lock-info.js';
import { MemcachedRequest } from './memcached-request.js';
import type { Connection, Item } from './connection.js';
import { diagnose } from './diagnostics.js';
import { type Hold, holderIn, holdOf, itemKeyOf, RETAINED, secondsFor, textOf } from './lock-item.js';
import type { MemcachedSettings } from './memcached-options.js';
import { ReconnectingConnection } from './reconnecting-connection.js';

// How many times to retry a write if the item has changed since it was read. Only this process's other writes can
// change it.
const TRIES = 3;

/**
 * One application's locks on a memcached server. Each lock is an item; `add` succeeds only for the first caller.
 */
export class MemcachedBackend implements LockBackend<MemcachedRequest> {
  readonly capabilities: LockCapabilities = {
    shared: false,
    fair: false,
    // CAS ids reset to 1 when the server restarts.
    fencing: false,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
  };
  readonly commandTimeout: number;
  readonly #connection: ReconnectingConnection;
  readonly #requests = new Set<MemcachedRequest>();

  constructor(
    private readonly context: BackendContext,
    settings: MemcachedSettings,
  ) {
    this.commandTimeout = settings.commandTimeout;
    this.#connection = new ReconnectingConnection(context, settings);
  }

  connect(): Promise<void> {
    return this.#connection.open();
  }

  async acquire(request: AcquireRequest<MemcachedRequest>): Promise<Grant | 'busy'> {
    const own = new MemcachedRequest(this.context, this.#connection, this.#itemKey(request.key), request);
    request.state = own;
    this.#requests.add(own);
    try {
      return await own.answer;
    } finally {
      this.#requests.delete(own);
    }
  }

  unansweredFor({ state }: AcquireRequest<MemcachedRequest>): number {
    return state?.unansweredFor ?? 0;
  }

  renew({ key, id }: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const { clock } = this.context;
    return this.#change(key, id, async (connection, item, hold) => {
      const now = clock.now();
      // The item may already have a later end: this renewal may be writing it again, after one that was sent later.
      const leaseEndsAt = Math.max(hold.leaseEndsAt, now + lease);
      const next = { ...hold, leaseEndsAt };
      const seconds = secondsFor(Math.max(leaseEndsAt, hold.keptUntil) - now);
      const isDone = await connection.replace(this.#itemKey(key), item, textOf(next), seconds);
      return isDone ? { validUntil: validUntil(now, lease) } : undefined;
    });
  }

  release({ key, id, state }: AcquireRequest<MemcachedRequest>, { keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    state?.release();
    const itemKey = this.#itemKey(key);
    return this.#change(key, id, async (connection, item) => {
      const isDone = await (keepFor > 0
        ? connection.replace(itemKey, item, RETAINED, secondsFor(keepFor))
        : connection.delete(itemKey, item));
      return isDone ? 'released' : undefined;
    });
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const item = await this.#connection.use((connection) => connection.read(this.#itemKey(key)), key);
    if (!item) return null;
    const isRetained = item.value === RETAINED;
    return {
      key,
      state: isRetained ? 'retained' : 'held',
      mode: 'exclusive',
      holders: isRetained ? 0 : 1,
      waiters: null,
      expiresIn: item.seconds * 1_000,
      fencingToken: null,
      instances: isRetained ? [] : [nameOrIdOf(holderIn(item.value), this.context.instance)],
      since: null,
    };
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#connection.use((connection) => connection.remove(this.#itemKey(key)), key);
  }

  diagnose(): Promise<Diagnostic[]> {
    return this.#connection.use(diagnose);
  }

  async close(): Promise<void> {
    const requests = [...this.#requests];
    for (const own of requests) own.release();
    // Before the connection closes, every command in flight gets its response or fails after `commandTimeout`.
    await Promise.allSettled(requests.map(({ answer }) => answer));
    this.#connection.close();
  }

  /** Applies `write` to the holder's item, and retries if the item has changed since it was read. */
  async #change<T>(
    key: string,
    holder: string,
    write: (connection: Connection, item: Item, hold: Hold) => Promise<T | undefined>,
  ): Promise<T | 'lost' | 'unknown'> {
    try {
      return await this.#connection.use(async (connection) => {
        for (let tries = 0; tries < TRIES; tries += 1) {
          const item = await connection.read(this.#itemKey(key));
          const hold = item && holdOf(item.value, holder);
          if (!hold) return 'lost';
          const outcome = await write(connection, item, hold);
          if (outcome !== undefined) return outcome;
        }
        return 'unknown';
      });
    } catch (error) {
      if (isUnavailable(error) || isRefusal(error)) return 'unknown';
      throw error;
    }
  }

  #itemKey(key: string): string {
    return itemKeyOf(this.context.namespace, key);
  }
}
