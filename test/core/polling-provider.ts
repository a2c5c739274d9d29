import type {
  AcquireRequest,
  BackendContext,
  Grant,
  LockCapabilities,
  LockProvider,
} from '../../lib/api/lock-provider.js';
import { pause } from '../../lib/core/toolkit/timing.js';
import { MemoryBackend } from '../../lib/providers/memory/memory-backend.js';
import type { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { copyOf } from '../contract/memory-server.js';

const POLL = 5;

/** Memory as a backend without a queue: a request waits by asking again. */
export class PollingProvider implements LockProvider {
  /** How many requests wait in its backends now, and at most ever. */
  waiters = 0;
  mostWaiters = 0;

  constructor(private readonly store: MemoryStore) {}

  createBackend(context: BackendContext): PollingBackend {
    return new PollingBackend(context, this.store, this);
  }
}

class PollingBackend extends MemoryBackend {
  override readonly capabilities: LockCapabilities = {
    ...{ shared: true, limits: true, fencing: true, lease: 'per-lock', minHold: true, forceRelease: true },
    fair: false,
  };

  constructor(
    private readonly surrounding: BackendContext,
    store: MemoryStore,
    private readonly counts: PollingProvider,
  ) {
    super(surrounding, store);
  }

  override async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { clock } = this.surrounding;
    const { signal } = request;
    const once: AcquireRequest = { ...copyOf(request), wait: 0, signal };
    const giveUpAt = clock.now() + request.wait;
    let answer = await super.acquire(once);
    if (answer !== 'busy' || request.wait <= 0) return answer;
    request.waits();
    this.counts.waiters += 1;
    this.counts.mostWaiters = Math.max(this.counts.mostWaiters, this.counts.waiters);
    while (answer === 'busy' && clock.now() < giveUpAt) {
      await pause(clock, POLL, signal);
      if (signal.aborted) break;
      answer = await super.acquire(once);
    }
    this.counts.waiters -= 1;
    return answer;
  }
}
