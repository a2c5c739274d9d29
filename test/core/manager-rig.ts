import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockManagerOptions } from '../../lib/core/lock-manager-options.js';
import type {
  LockProvider,
  AcquireRequest,
  BackendContext,
  Grant,
  LockCapabilities,
} from '../../lib/api/lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import type { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { LockEventMap, LockEventName } from '../../lib/api/lock-events.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { pause } from '../../lib/core/toolkit/timing.js';
import { MemoryBackend } from '../../lib/providers/memory/memory-backend.js';
import { copyOf } from '../contract/memory-server.js';

const EVENTS: readonly LockEventName[] = [
  ...(['waiting', 'acquired', 'released', 'renewed', 'renewal-failed', 'lost'] as const),
  ...(['busy', 'skipped', 'release-pending', 'unavailable'] as const),
];

export interface RecordedEvent<N extends LockEventName = LockEventName> {
  readonly name: N;
  readonly event: LockEventMap[N];
}

/** Starts a manager on a fake clock, and records its events and log. */
export async function startManager(options: Partial<LockManagerOptions> & { readonly provider?: LockProvider } = {}) {
  const { provider, ...rest } = options;
  const clock = new FakeClock();
  const log: string[] = [];
  const say = (message: string) => {
    log.push(message);
  };
  const locks = new LockManager({
    providers: { main: provider ?? new MemoryLockProvider() },
    clock,
    logger: { debug: say, warn: say, error: say },
    ...rest,
  });
  const events: RecordedEvent[] = [];
  for (const name of EVENTS) locks.events.on(name, (event) => events.push({ name, event }));
  await locks.start();
  return { locks, clock, log, events, names: () => events.map(({ name }) => name) };
}

/** A backend that keeps a queue and a backend that polls, over the same store. */
export const BACKENDS: readonly [string, (store: MemoryStore) => LockProvider][] = [
  ['fair', (store) => new MemoryLockProvider({ store })],
  ['polling', (store) => new PollingProvider(store)],
];

/** The outcome of a promise so far. Also marks the promise as handled. */
export class Outcome<T> {
  state: 'pending' | 'fulfilled' | 'rejected' = 'pending';
  value: T | undefined;
  error: unknown;

  constructor(readonly promise: Promise<T>) {
    promise.then(
      (value) => {
        this.state = 'fulfilled';
        this.value = value;
      },
      (error: unknown) => {
        this.state = 'rejected';
        this.error = error;
      },
    );
  }
}

export function watch<T>(promise: Promise<T>): Outcome<T> {
  return new Outcome(promise);
}

/** A promise that the test settles. */
export function deferred<T = void>() {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((onValue, onError) => {
    resolve = onValue;
    reject = onError;
  });
  return { promise, resolve, reject };
}

const POLL = 5;

/** Memory as a backend without a queue: a request waits by polling. */
export class PollingProvider implements LockProvider {
  /** The number of requests that currently wait in the backends, and its maximum so far. */
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
