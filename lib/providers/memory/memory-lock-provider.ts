import cluster from 'node:cluster';
import type { LockInfo } from '../../api/lock-info.js';
import { validUntil } from '../../core/toolkit/validity.js';
import {
  type AcquireRequest,
  type Answer,
  type Grant,
  type Holder,
  type LockCapabilities,
  type LockProvider,
  type ProviderContext,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../api/lock-provider.js';
import { LockTable, type TableHold } from './lock-table.js';

export interface MemoryLockProviderOptions {
  /** Share this table with another provider of the same process; both then compete for the same locks. Default: one of its own. */
  readonly table?: LockTable;
}

/**
 * Locks in the memory of this process: the default, with nothing to install.
 *
 * It guarantees mutual exclusion, FIFO order and growing fencing tokens among the tasks of one process. It protects
 * nothing between processes, and warns when it finds itself in a worker of a cluster. A holder whose event loop is
 * blocked for longer than its lease loses the lock, as with any other provider.
 */
export class MemoryLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities = {
    shared: true,
    fair: true,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    queue: 'native',
  };
  readonly #table: LockTable;
  #context: ProviderContext | undefined;

  constructor(options: MemoryLockProviderOptions = {}) {
    this.#table = options.table ?? new LockTable();
  }

  start(context: ProviderContext): Promise<void> {
    this.#context = context;
    this.#table.use(context.clock);
    if (cluster.isWorker) {
      context.logger.warn(
        `Lock provider "${context.name}" keeps its locks in the memory of this process, which is one worker of a cluster: its locks exclude nobody in the other workers.`,
      );
    }
    return Promise.resolve();
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    const context = this.#started();
    const key = this.#name(request.key);
    const onLost = () => {
      context.emit({ type: 'lost', holder: request.holder });
    };
    const hold = this.#table.tryTake(key, request, onLost);
    if (hold) return grantOf(request, hold, context.clock.now());
    if (request.wait <= 0 || request.signal.aborted) return 'busy';
    return new Promise((resolve) => {
      const place = this.#table.wait(key, request, onLost, (served) => {
        resolve(served ? grantOf(request, served, context.clock.now()) : 'busy');
      });
      request.signal.addEventListener(
        'abort',
        () => {
          place.leave();
          resolve('busy');
        },
        { once: true },
      );
      context.emit({ type: 'waiting', holder: request.holder });
    });
  }

  renew({ key, holder }: Grant, lease: number): Promise<RenewOutcome> {
    const now = this.#started().clock.now();
    const hold = this.#table.prolong(this.#name(key), holder, lease);
    return Promise.resolve(hold ? { validUntil: validUntil(now, lease) } : 'lost');
  }

  release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
    return this.#table.release(this.#name(holder.key), holder.holder, manner.keepFor) ? 'released' : 'lost';
  }

  inspect(key: string): Promise<LockInfo | null> {
    const { clock } = this.#started();
    const found = this.#table.look(this.#name(key));
    if (!found) return Promise.resolve(null);
    const [first] = found.holds;
    return Promise.resolve({
      key,
      state: first ? 'held' : 'parked',
      mode: found.mode,
      holders: found.holds.length,
      waiters: found.waiters,
      expiresIn: found.endsAt - clock.now(),
      fencingToken: first?.token ?? null,
    });
  }

  forceRelease(key: string): Promise<boolean> {
    return Promise.resolve(this.#table.free(this.#name(key)));
  }

  stop(): Promise<void> {
    return Promise.resolve();
  }

  #started(): ProviderContext {
    if (this.#context) return this.#context;
    throw new Error('MemoryLockProvider was not started');
  }

  // A namespace has no ':', so that no pair of namespace and key meets another.
  #name(key: string): string {
    return `${this.#started().namespace}:${key}`;
  }
}

function grantOf({ key, holder, mode, lease }: AcquireRequest, hold: TableHold, now: number): Grant {
  // A hold that was found again is as old as it is: asking does not prolong it.
  const remaining = Math.min(lease, hold.expiresAt - now);
  return { key, holder, mode, fencingToken: hold.token, validUntil: validUntil(now, remaining), lease };
}
