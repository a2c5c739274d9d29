import type fc from 'fast-check';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  LockCapabilities,
  LockProvider,
  ReleaseOptions,
  ReleaseOutcome,
} from '../../lib/api/lock-provider.js';
import { MemoryBackend } from '../../lib/providers/memory/memory-backend.js';
import type { MemoryStore } from '../../lib/providers/memory/memory-store.js';

const YEARS = 1e11;

interface Distance {
  readonly store: MemoryStore;
  readonly fair: boolean;
  readonly scheduler: fc.Scheduler;
  /** `session`: what nobody releases stays permanently, as it does in ZooKeeper while its session lives. */
  readonly life?: LockCapabilities['lease'];
}

/** Memory at the far end of a wire: each call and each answer arrives when the scheduler says so, or fails on the way. */
export class DistantProvider implements LockProvider {
  constructor(
    private readonly distance: Distance,
    private readonly fails: () => boolean = () => false,
  ) {}

  createBackend(context: BackendContext): DistantBackend {
    return new DistantBackend(context, this.distance, this.fails);
  }
}

class DistantBackend extends MemoryBackend {
  override readonly capabilities: LockCapabilities;
  /** The ids that were released. Case #S4 of the kit: none of them holds again, whichever of the two arrives first. */
  readonly #released = new Set<string>();

  constructor(
    context: BackendContext,
    private readonly distance: Distance,
    private readonly fails: () => boolean,
  ) {
    super(context, distance.store);
    this.capabilities = {
      ...{ shared: true, fencing: true, lease: 'per-lock', minHold: true, forceRelease: true },
      fair: distance.fair,
    };
  }

  override acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#travel('acquire', async () =>
      this.#released.has(request.id) ? 'busy' : super.acquire(this.#lasting(request)),
    );
  }

  override release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    return this.#travel('release', () => {
      this.#released.add(request.id);
      return super.release(request, options);
    });
  }

  #lasting(request: AcquireRequest): AcquireRequest {
    if (this.distance.life !== 'session') return request;
    const { key, id, mode, minHold, otherKeysHeld } = request;
    return {
      ...{ key, id, mode, minHold, otherKeysHeld, lease: YEARS },
      get wait() {
        return request.wait;
      },
      get since() {
        return request.since;
      },
      get callers() {
        return request.callers;
      },
      get signal() {
        return request.signal;
      },
      waits: () => {
        request.waits();
      },
      lost: (cause) => {
        request.lost(cause);
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
