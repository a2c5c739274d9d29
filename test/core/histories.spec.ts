import fc from 'fast-check';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { exploration } from '../exploration.js';
import { DistantProvider } from './distant-provider.js';

/** One call on a mutex, as its caller saw it. Moments are numbers that grow; Infinity: it never came back. */
interface Operation {
  readonly holder: number;
  readonly invoked: number;
  readonly returned: number;
  /**
   * `acquired`, `released`: it did. `busy`: somebody else had it at some moment of the call. `maybe-acquired`, `maybe-released`:
   * the caller left, or was not answered; it may have happened once at any moment from its call on, or never.
   */
  readonly outcome: 'acquired' | 'released' | 'busy' | 'maybe-acquired' | 'maybe-released';
}

/**
 * Whether the history could be that of one mutex: whether there is a moment within each call at which it took effect, so that all
 * together are legal. (Wing and Gong's search, with Lowe's memory of what was tried.)
 */
function isHistoryOfMutex(operations: readonly Operation[]): boolean {
  const tried = new Set<string>();
  const all = operations.map((_, index) => index);

  function search(open: readonly number[], owner: number | undefined): boolean {
    if (open.every((index) => isOptional(operations[index]))) return true;
    const state = `${owner}:${open.join()}`;
    if (tried.has(state)) return false;
    tried.add(state);
    // What comes next has begun before any of the others has ended.
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

describe('the model of a mutex', () => {
  const one = { holder: 1, invoked: 0, returned: 1, outcome: 'acquired' } as const;
  const two = { holder: 2, invoked: 2, returned: 3 } as const;

  it('knows a history that is legal in some order', () => {
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

  it('refuses two holders, a free lock that is called busy, and a release too late', () => {
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
  it('are those of a mutex, whatever is lost and whoever leaves', async () => {
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
              // One that was not confirmed is repeated in the background.
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
