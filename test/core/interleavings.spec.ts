import fc from 'fast-check';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { exploration } from '../exploration.js';
import { DistantProvider } from './distant-provider.js';

/** What one caller does. */
interface Script {
  readonly mode: 'exclusive' | 'shared';
  readonly wait: number;
  readonly lease: number;
  /** When it gives up by its signal, in ms; undefined: never. */
  readonly abortAt: number | undefined;
  /** How often its task lets others run. */
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
])('all interleavings that were tried (%s backend)', (_backend, fair) => {
  it.each([
    ['without faults', 0, 'per-lock'],
    ['with replies that are lost', 4, 'per-lock'],
    ['with replies that are lost, by a session that never ends', 4, 'session'],
  ] as const)('exclude each other, lose no wake-up and leave nothing: %s', async (_, faults, life) => {
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
                  if (!alone) violations.push(`${index} entered among ${inside.size}`);
                  const token = lock.fencingToken ?? 0n;
                  if (token < lastToken) violations.push(`${index} has an older token`);
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

          // Time goes on when nothing else can happen, and long enough for every lease and wait to end.
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

  it('serve callers of one process in the order in which they came', async () => {
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
