import type fc from 'fast-check';
import type {
  AcquireRequest,
  Answer,
  Grant,
  Holder,
  LockCapabilities,
  ReleaseManner,
  ReleaseOutcome,
} from '../../lib/api/lock-provider.js';
import type { LockTable } from '../../lib/providers/memory/lock-table.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';

const YEARS = 1e11;

interface Distance {
  readonly table: LockTable;
  readonly queue: LockCapabilities['queue'];
  readonly scheduler: fc.Scheduler;
  /** `session`: what nobody releases stays for ever, as it does in ZooKeeper while its session lives. */
  readonly life?: LockCapabilities['lease'];
}

/** Memory at the far end of a wire: each call and each answer arrives when the scheduler says so, or fails on the way. */
export class DistantProvider extends MemoryLockProvider {
  override readonly capabilities: LockCapabilities;

  constructor(
    private readonly distance: Distance,
    private readonly fails: () => boolean = () => false,
  ) {
    super({ table: distance.table });
    this.capabilities = { ...new MemoryLockProvider().capabilities, queue: distance.queue };
  }

  override acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    return this.#travel('acquire', async () => super.acquire(this.#lasting(request)));
  }

  override release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
    // Of a promise, though the parent answers without.
    return this.#travel('release', async () => super.release(holder, manner)) as unknown as ReleaseOutcome;
  }

  #lasting(request: AcquireRequest): AcquireRequest {
    if (this.distance.life !== 'session') return request;
    const { key, holder, mode, renew, minHold, options } = request;
    return {
      ...{ key, holder, mode, renew, minHold, options, lease: YEARS },
      get wait() {
        return request.wait;
      },
      get signal() {
        return request.signal;
      },
    };
  }

  async #travel<T>(label: string, call: () => Promise<T>): Promise<T> {
    const { scheduler } = this.distance;
    await scheduler.schedule(Promise.resolve(), label);
    const lostOnTheWay = this.fails();
    const answer = await call();
    if (lostOnTheWay) throw new Error('reply lost');
    await scheduler.schedule(Promise.resolve(), `${label} answer`);
    return answer;
  }
}
