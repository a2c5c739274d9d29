import assert from 'node:assert/strict';
import type { CaseDefinition } from '../case-definition.js';
import { rejection } from '../expectations.js';
import { openHandles, type OpenHandles } from '../open-handles.js';
import type { Stage } from '../stage.js';
import type { TestProcess } from '../test-process.js';

/** Nothing is left behind: no timer, no socket, no record in the backend. */
export const hygieneCases: readonly CaseDefinition[] = [
  {
    id: '#S13',
    title: 'log lines, events, errors and what operators see contain no holder id (nor in any other case)',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const lock = await ann.locks.acquire('order', stage.shortLease);
      stage.secrets.overheard(await rejection(bob.locks.acquire('order', { wait: 50 }), 'busy'));
      stage.secrets.overheard([...ann.locks.admin.held(), ...bob.locks.admin.waiting()]);
      if (stage.capabilities.forceRelease) {
        stage.secrets.overheard(await bob.locks.admin.inspect('order'));
        await bob.locks.admin.forceRelease('order');
        await stage.eventually(stage.lease, () => !lock.isHeld(), 'the loss is known');
        stage.secrets.overheard(lock.signal.reason);
      }
      await lock.release();
      stage.secrets.assertKept();
    },
  },
  {
    id: '#S14',
    title: 'the constructor and createBackend open nothing',
    alone: true,
    async run(stage) {
      const before = openHandles();
      stage.caller(await stage.harness.create());
      await stage.sleep(20);
      await assertClosed(stage, before);
    },
  },
  {
    id: '#S15',
    title: 'close closes all that connect has opened, also during a hold and a waiter that leaves',
    alone: true,
    async run(stage) {
      const before = openHandles();
      const caller = await stage.direct();
      await caller.take('held');
      const leaving = new AbortController();
      const waiter = await stage.askInLine(caller, 'held', { signal: leaving.signal });
      leaving.abort();
      await stage.within(stage.bounds.noAnswer, caller.backend.close(), 'close');
      assert.equal(await waiter.answer, 'busy');
      await assertClosed(stage, before);
    },
  },
  {
    id: '#55',
    title: 'nothing is left after hundreds of locks, and after waits that ended in every way',
    alone: true,
    async run(stage) {
      const before = openHandles();
      const left = await stage.harness.remainingLocks?.(stage.namespace);
      const [ann, bob] = await stage.processes(2);
      await (await ann.locks.acquire('warm')).release();
      const armed = stage.clock.count;
      if (left !== undefined) await assertCountsLocks(stage, ann, left);
      const loop = async (key: string) => {
        for (let round = 0; round < stage.rounds(250); round += 1) await (await ann.locks.acquire(key)).release();
      };
      await Promise.all(['a', 'b', 'c', 'd'].map(loop));
      await ann.locks.withLock('busy', async () => {
        const leaving = new AbortController();
        const attempts = Promise.allSettled([
          bob.locks.acquire('busy', { wait: 50 }),
          bob.locks.acquire('busy', { wait: 30_000, signal: leaving.signal }),
          bob.tryAcquire('busy'),
        ]);
        await stage.sleep(50);
        leaving.abort();
        await attempts;
      });
      await stage.eventually(stage.bounds.cleanUp, () => stage.clock.count <= armed, 'no more timers than before');
      await Promise.all([ann.locks.stop(), bob.locks.stop()]);
      await assertClosed(stage, before);
      if (left === undefined) return;
      await stage.eventually(
        stage.bounds.cleanUp,
        async () => ((await stage.harness.remainingLocks?.(stage.namespace)) ?? 0) <= left,
        'nothing left in the backend',
      );
    },
  },
];

/** A harness that always counts 0 would find no leaks. */
async function assertCountsLocks(stage: Stage, { locks }: TestProcess, before: number): Promise<void> {
  const lock = await locks.acquire('counted');
  const count = (await stage.harness.remainingLocks?.(stage.namespace)) ?? 0;
  assert.ok(count > before, 'the harness counts a lock that is held as left over');
  await lock.release();
}

async function assertClosed(stage: Stage, before: OpenHandles): Promise<void> {
  await stage.eventually(1_000, () => stage.clock.count === 0, 'no timer is left');
  assert.deepEqual(await before.outlivedBy(), [], 'what keeps the process alive is closed');
}
