import fc from 'fast-check';
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
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { exploration } from '../exploration.js';

// The simulation in test/world has backends that keep a queue, and leases that expire. Here, a scheduler decides when
// each call and each response arrives at a backend that has no queue, or whose locks last until they are released. Only
// here is the result "busy" checked: another caller must have held the lock at some moment of the call.

const YEARS = 1e11;

interface Distance {
  readonly store: MemoryStore;
  readonly fair: boolean;
  readonly scheduler: fc.Scheduler;
  /** `session`: a lock that is never released stays forever, as in ZooKeeper while the session lives. */
  readonly life?: LockCapabilities['lease'];
}

/** Memory behind a network: each call and each response arrives when the scheduler decides, or is lost. */
class DistantProvider implements LockProvider {
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
  /** The released ids. As in case #S4 of the kit, a released id never holds again, whichever call arrives first. */
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
    if (lostOnTheWay) throw new Error('response lost');
    await scheduler.schedule(Promise.resolve(), `${label} response`);
    return answer;
  }
}

/** The behavior of one caller. */
interface Script {
  readonly mode: 'exclusive' | 'shared';
  readonly wait: number;
  readonly lease: number;
  /** When the caller aborts, in ms; undefined means never. */
  readonly abortAt: number | undefined;
  /** How many times the caller's task yields to others. */
  readonly steps: number;
}

const script: fc.Arbitrary<Script> = fc.record({
  mode: fc.constantFrom('exclusive', 'exclusive', 'shared'),
  wait: fc.constantFrom(0, 5, 50, 1_000, Infinity),
  lease: fc.constantFrom(100, 1_000),
  abortAt: fc.option(fc.integer({ min: 0, max: 60 }), { nil: undefined }),
  steps: fc.integer({ min: 0, max: 3 }),
});

describe.each([
  ['fair', true],
  ['polling', false],
])('interleavings (%s backend)', (_backend, fair) => {
  it.each([
    ['without faults', 0, 'per-lock'],
    ['with lost responses', 4, 'per-lock'],
    ['with lost responses and a session that never ends', 4, 'session'],
  ] as const)('exclude each other, wake every waiter and leave nothing behind: %s', async (_, faults, life) => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.array(script, { minLength: 2, maxLength: 6 }),
        fc.array(fc.nat({ max: 12 }), { maxLength: faults }),
        async (scheduler, scripts, faultsAt) => {
          const store = new MemoryStore();
          const clock = new FakeClock();
          let calls = 0;
          const provider = new DistantProvider({ store, fair, life, scheduler }, () => faultsAt.includes(calls++));
          const locks = new LockManager({ providers: { main: provider }, clock });
          await locks.start();

          const inside = new Set<Script>();
          const violations: string[] = [];
          let lastToken = 0n;
          const callers = scripts.map(async (caller, index) => {
            const controller = new AbortController();
            if (caller.abortAt !== undefined) clock.setTimer(() => controller.abort('gave up'), caller.abortAt);
            const { mode, wait, lease } = caller;
            try {
              await locks.withLock(
                'k',
                async (lock) => {
                  const alone = [...inside].every((other) => other.mode === 'shared' && mode === 'shared');
                  if (!alone) violations.push(`${index} entered while ${inside.size} were inside`);
                  const token = lock.fencingToken ?? 0n;
                  if (token < lastToken) violations.push(`${index} got an older token`);
                  lastToken = token;
                  inside.add(caller);
                  for (let step = 0; step < caller.steps && lock.isHeld(); step += 1) {
                    await scheduler.schedule(Promise.resolve(), `task ${index}`);
                  }
                  inside.delete(caller);
                },
                { mode, wait, lease, signal: controller.signal, onLost: 'ignore' },
              );
              return 'served';
            } catch (error) {
              return (error as { code?: string }).code ?? error;
            }
          });
          const results = Promise.all(callers);

          // Advances only when nothing else can happen, and long enough for every lease and wait to end.
          for (let round = 0; round < 60; round += 1) {
            await scheduler.waitIdle();
            await clock.advance(round < 30 ? 10 : 1_000);
          }
          await scheduler.waitIdle();
          const outcomes = await results;

          expect(violations).toEqual([]);
          const expected = ['served', 'LOCK_BUSY', 'gave up', ...(faultsAt.length > 0 ? ['LOCK_UNAVAILABLE'] : [])];
          for (const outcome of outcomes) expect(expected).toContain(outcome);
          outcomes.forEach((outcome, index) => {
            const patient = scripts[index]?.wait === Infinity && scripts[index].abortAt === undefined;
            if (patient) expect(outcome).toBe('served');
          });
          expect([locks.admin.held(), locks.admin.waiting()]).toEqual([[], []]);
          store.report('lock:k');
          expect([store.size, clock.pendingTimers]).toEqual([0, 0]);
        },
      ),
      { numRuns: exploration(12, 2_000) },
    );
  });

  it('serve callers of one process in order of arrival', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.array(fc.boolean(), { minLength: 3, maxLength: 8 }),
        async (scheduler, leaves) => {
          const provider = new DistantProvider({ store: new MemoryStore(), fair, scheduler });
          const clock = new FakeClock();
          const locks = new LockManager({ providers: { main: provider }, clock });
          await locks.start();
          const served: number[] = [];
          const callers = leaves.map(async (leaving, index) => {
            const controller = new AbortController();
            // The first one keeps the others waiting while some of them leave.
            if (leaving && index > 0)
              void scheduler.schedule(Promise.resolve(), 'leave').then(() => controller.abort());
            await locks
              .withLock('k', () => served.push(index), { wait: Infinity, signal: controller.signal })
              .catch(() => undefined);
          });
          const all = Promise.all(callers);
          await scheduler.waitIdle();
          await clock.advance(2_000);
          await scheduler.waitIdle();
          await all;
          expect(served).toEqual([...served].sort((a, b) => a - b));
          leaves.forEach((leaving, index) => {
            if (!leaving) expect(served).toContain(index);
          });
        },
      ),
      { numRuns: exploration(12, 2_000) },
    );
  });
});

/**
 * A call on a mutex as seen by its caller. Timestamps are increasing numbers; Infinity means that the call never
 * returned.
 */
interface Operation {
  readonly holder: number;
  readonly invoked: number;
  readonly returned: number;
  /**
   * `acquired`, `released`: the call succeeded. `busy`: another caller held the mutex at some moment of the call.
   * `maybe-acquired`, `maybe-released`: the caller left or got no response, so the call may have taken effect once, at
   * any moment after it started, or never.
   */
  readonly outcome: 'acquired' | 'released' | 'busy' | 'maybe-acquired' | 'maybe-released';
}

/**
 * Returns whether the history is linearizable for a mutex: whether each call has a moment at which it took effect, so
 * that all of them together are legal. Uses Wing and Gong's search with Lowe's memoization.
 */
function isHistoryOfMutex(operations: readonly Operation[]): boolean {
  const tried = new Set<string>();
  const all = operations.map((_, index) => index);

  function search(open: readonly number[], owner: number | undefined): boolean {
    if (open.every((index) => isOptional(operations[index]))) return true;
    const state = `${owner}:${open.join()}`;
    if (tried.has(state)) return false;
    tried.add(state);
    // The next operation must have started before any of the others ended.
    const horizon = Math.min(...open.map((index) => endOf(operations[index])));
    return open.some((index) => {
      const operation = operations[index]!;
      if (operation.invoked > horizon) return false;
      const next = apply(operation, owner);
      return (
        next !== 'illegal' &&
        search(
          open.filter((other) => other !== index),
          next,
        )
      );
    });
  }
  return search(all, undefined);
}

const isOptional = (operation: Operation | undefined) => operation?.outcome.startsWith('maybe') ?? true;

const endOf = (operation: Operation | undefined) =>
  operation && !isOptional(operation) ? operation.returned : Infinity;

function apply({ holder, outcome }: Operation, owner: number | undefined): number | undefined | 'illegal' {
  switch (outcome) {
    case 'acquired':
    case 'maybe-acquired':
      return owner === undefined ? holder : 'illegal';
    case 'released':
    case 'maybe-released':
      return owner === holder ? undefined : 'illegal';
    case 'busy':
      return owner !== undefined && owner !== holder ? owner : 'illegal';
  }
}

describe('the mutex checker', () => {
  const one = { holder: 1, invoked: 0, returned: 1, outcome: 'acquired' } as const;
  const two = { holder: 2, invoked: 2, returned: 3 } as const;

  it('accepts a history that is legal in some order', () => {
    const release = { holder: 1, invoked: 2, returned: 9, outcome: 'released' } as const;
    expect(isHistoryOfMutex([one, { ...two, outcome: 'acquired' }, release])).toBe(true);
    expect(isHistoryOfMutex([one, { ...two, outcome: 'busy' }])).toBe(true);
    expect(
      isHistoryOfMutex([
        { ...one, outcome: 'maybe-acquired' },
        { ...two, outcome: 'busy' },
      ]),
    ).toBe(true);
  });

  it('rejects two holders, a free lock reported as busy, and a late release', () => {
    expect(isHistoryOfMutex([one, { ...two, outcome: 'acquired' }])).toBe(false);
    expect(isHistoryOfMutex([{ ...two, outcome: 'busy' }])).toBe(false);
    const late = { holder: 1, invoked: 4, returned: 5, outcome: 'released' } as const;
    expect(isHistoryOfMutex([one, { ...two, outcome: 'acquired' }, late])).toBe(false);
  });
});

const caller = fc.record({
  wait: fc.constantFrom(0, 0, 20, 1_000, Infinity),
  abortAt: fc.option(fc.integer({ min: 0, max: 40 }), { nil: undefined }),
  steps: fc.integer({ min: 0, max: 3 }),
});

describe.each([
  ['fair', true],
  ['polling', false],
])('recorded histories (%s backend)', (_, fair) => {
  it('are linearizable despite lost responses and aborted callers', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.array(caller, { minLength: 2, maxLength: 5 }),
        fc.array(fc.nat({ max: 10 }), { maxLength: 3 }),
        async (scheduler, callers, faultsAt) => {
          const clock = new FakeClock();
          let calls = 0;
          const distance = { store: new MemoryStore(), fair, scheduler, life: 'session' } as const;
          const provider = new DistantProvider(distance, () => faultsAt.includes(calls++));
          const locks = new LockManager({ providers: { main: provider }, clock });
          await locks.start();

          let moment = 0;
          const now = () => (moment += 1);
          const history: Operation[] = [];
          const record = (holder: number, invoked: number, outcome: Operation['outcome']) => {
            history.push({ holder, invoked, returned: now(), outcome });
          };
          const all = callers.map(async ({ wait, abortAt, steps }, holder) => {
            const controller = new AbortController();
            if (abortAt !== undefined) clock.setTimer(() => controller.abort('left'), abortAt);
            const asked = now();
            try {
              const lock = await locks.acquire('k', { wait, signal: controller.signal });
              record(holder, asked, 'acquired');
              for (let step = 0; step < steps; step += 1) await scheduler.schedule(Promise.resolve(), 'task');
              const left = now();
              const isReleased = (await lock.release()) === 'released';
              // An unconfirmed release is retried in the background.
              record(holder, left, isReleased ? 'released' : 'maybe-released');
            } catch (error) {
              const isBusy = (error as { code?: string }).code === 'LOCK_BUSY';
              record(holder, asked, isBusy ? 'busy' : 'maybe-acquired');
              if (!isBusy) record(holder, asked, 'maybe-released');
            }
          });
          const done = Promise.all(all);
          for (let round = 0; round < 60; round += 1) {
            await scheduler.waitIdle();
            await clock.advance(round < 30 ? 10 : 1_000);
          }
          await scheduler.waitIdle();
          await done;
          expect({ isHistoryOfMutex: isHistoryOfMutex(history), history }).toMatchObject({ isHistoryOfMutex: true });
        },
      ),
      { numRuns: exploration(15, 3_000) },
    );
  });
});
