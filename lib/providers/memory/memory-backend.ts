import cluster from 'node:cluster';
import type { LockInfo } from '../../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  Holding,
  LockBackend,
  LockCapabilities,
  RecordStore,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
  WaitBoard,
} from '../../api/lock-provider.js';
import { instanceIdOf, instancesOf } from '../../core/toolkit/instance-ids.js';
import { firstToken, timeOfToken } from '../../core/toolkit/fencing-token.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { MemoryRecords } from './memory-records.js';
import type { MemoryStore, SlotReport } from './memory-store.js';
import { MemoryWaits } from './memory-waits.js';
import type { StoredHold } from './stored-hold.js';

/**
 * One application's locks in a {@link MemoryStore}. Each operation takes effect synchronously, so locks are granted in
 * call order.
 */
export class MemoryBackend implements LockBackend {
  readonly capabilities: LockCapabilities = {
    shared: true,
    limits: true,
    fair: true,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    list: true,
    ordered: true,
  };
  readonly locksEndWithProcess = true;
  readonly records: RecordStore;
  readonly waits: WaitBoard;

  constructor(
    private readonly context: BackendContext,
    private readonly store: MemoryStore,
  ) {
    store.use(context.clock);
    this.records = new MemoryRecords(store, this.#name(''));
    this.waits = new MemoryWaits(store, this.#name(''), context.name, context.instance.id);
  }

  connect(): Promise<void> {
    const { instance, logger, name } = this.context;
    this.store.enter(instance);
    if (cluster.isWorker) {
      logger.warn(
        `Lock provider "${name}" keeps its locks in the memory of this cluster worker. Other workers can hold the same lock at once: use another provider, such as Redis or SQL.`,
      );
    }
    return Promise.resolve();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { clock } = this.context;
    const key = this.#name(request.key);
    const hold = this.store.tryTake(key, request);
    if (hold) return Promise.resolve(grantOf(request, hold, clock.now()));
    if (request.wait <= 0 || request.signal.aborted) return Promise.resolve('busy');
    return new Promise((resolve) => {
      const dequeue = this.store.wait(key, request, (served) => {
        resolve(served ? grantOf(request, served, clock.now()) : 'busy');
      });
      const leave = () => {
        dequeue();
        resolve('busy');
      };
      request.signal.addEventListener('abort', leave, { once: true });
      request.waits();
    });
  }

  heldBy({ key }: AcquireRequest): Holding | null {
    const found = this.store.holding(this.#name(key));
    if (!found) return null;
    const { hold, holders } = found;
    const { clock } = this.context;
    const now = clock.now();
    const isAlone = hold.mode === 'exclusive';
    const since = isAlone ? timeOfToken(hold.token, clock.wallTime()) : null;
    return {
      holders,
      instance: isAlone ? this.store.nameOf(instanceIdOf(hold.holder)) : null,
      since: since && now - (clock.wallTime() - since.getTime()),
      seenAt: now,
    };
  }

  label({ key, id }: AcquireRequest, text: string): void {
    this.store.label(this.#name(key), id, text);
  }

  labelOf(key: string): Promise<string | null> {
    return Promise.resolve(this.store.labelOf(this.#name(key)) ?? null);
  }

  renew({ key, id }: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const now = this.context.clock.now();
    const isHeld = this.store.renew(this.#name(key), id, lease);
    return Promise.resolve(isHeld ? { validUntil: validUntil(now, lease) } : 'lost');
  }

  release({ key, id }: AcquireRequest, { keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    return Promise.resolve(this.store.release(this.#name(key), id, keepFor) ? 'released' : 'lost');
  }

  inspect(key: string): Promise<LockInfo | null> {
    const found = this.store.report(this.#name(key));
    return Promise.resolve(found ? this.#infoOf(key, found) : null);
  }

  forceRelease(key: string): Promise<boolean> {
    return Promise.resolve(this.store.free(this.#name(key)));
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- a generator reads each lock only when the caller gets to it
  async *list({ prefix }: { readonly prefix: string }): AsyncIterable<LockInfo> {
    const namespace = this.#name('');
    for (const name of this.store.keys(namespace + prefix)) {
      const found = this.store.report(name);
      if (!found) continue;
      yield this.#infoOf(name.slice(namespace.length), found);
    }
  }

  close(): Promise<void> {
    this.store.leave(this.context.instance);
    return Promise.resolve();
  }

  #infoOf(key: string, found: SlotReport): LockInfo {
    const { holds, mode, waiters, used, smallestLimit, endsAt } = found;
    return {
      key,
      state: holds.length > 0 ? 'held' : 'retained',
      mode,
      holders: holds.length,
      ...(mode === 'limited' && { limit: smallestLimit, used }),
      waiters,
      expiresIn: endsAt - this.context.clock.now(),
      fencingToken: mode === 'limited' ? null : (holds.at(-1)?.token ?? null),
      instances: instancesOf(holds.map(({ holder }) => holder)).map((id) => this.store.nameOf(id)),
      since: this.#sinceOf(found),
    };
  }

  // All readers share the first one's token, so individual start times aren't known.
  #sinceOf({ mode, holds }: SlotReport): Date | null {
    const token = holds.at(-1)?.token;
    if (mode === 'shared' || token === undefined) return null;
    return timeOfToken(token, this.context.clock.wallTime());
  }

  // Namespaces can't contain ':', so each namespace and key together form a unique name.
  #name(key: string): string {
    return `${this.context.namespace}:${key}`;
  }
}

function grantOf({ mode, lease }: AcquireRequest, hold: StoredHold, now: number): Grant {
  // A repeated request finds its existing hold, which must not be extended.
  const remaining = Math.min(lease, hold.expiresAt - now);
  return {
    fencingToken: firstToken(mode, hold.token),
    validUntil: validUntil(now, remaining),
    lease,
  };
}
