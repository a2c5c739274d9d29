import assert from 'node:assert/strict';
import type { CaseDefinition } from '../case-definition.js';
import { DirectCaller } from '../direct-caller.js';
import { openHandles, type OpenHandles } from '../open-handles.js';
import type { Stage } from '../stage.js';

/** Nothing stays behind: no timer, no socket, no record in the backend. */
export const hygieneCases: readonly CaseDefinition[] = [
  {
    id: '#S13',
    title: 'the constructor opens nothing',
    alone: true,
    async run(stage) {
      const before = openHandles();
      await stage.harness.create();
      await stage.sleep(20);
      assert.deepEqual(openHandles().since(before), []);
    },
  },
  {
    id: '#S14',
    title: 'stop closes all that start has opened, also beneath a hold and a waiter that leaves',
    alone: true,
    async run(stage) {
      const before = openHandles();
      const caller = new DirectCaller(await stage.harness.create(), stage.clock, stage.secrets);
      await stage.start(caller);
      await caller.take('held');
      const departure = new AbortController();
      const waiting = caller.ask('held', { wait: 30_000, signal: departure.signal });
      await stage.sleep(20);
      departure.abort();
      await stage.within(stage.bounds.noAnswer, caller.provider.stop(), 'the stop');
      assert.equal(await waiting, 'busy');
      await assertClosed(stage, before);
    },
  },
  {
    id: '#55',
    title: 'nothing is left after 1 000 locks, and after waits that ended in every way',
    alone: true,
    async run(stage) {
      const before = openHandles();
      const left = await stage.harness.leftovers?.(stage.namespace);
      const [ann, bob] = await stage.processes(2);
      await (await ann.locks.acquire('warm')).release();
      const armed = stage.clock.count;
      const loop = async (key: string) => {
        for (let round = 0; round < 250; round += 1) await (await ann.locks.acquire(key)).release();
      };
      await Promise.all(['a', 'b', 'c', 'd'].map(loop));
      await ann.locks.withLock('busy', async () => {
        const departure = new AbortController();
        const attempts = Promise.allSettled([
          bob.locks.acquire('busy', { wait: 50 }),
          bob.locks.acquire('busy', { wait: 30_000, signal: departure.signal }),
          bob.locks.tryAcquire('busy'),
        ]);
        await stage.sleep(50);
        departure.abort();
        await attempts;
      });
      await stage.eventually(stage.bounds.cleanUp, () => stage.clock.count <= armed, 'no more timers than before');
      await Promise.all([ann.locks.stop(), bob.locks.stop()]);
      await assertClosed(stage, before);
      if (left === undefined) return;
      await stage.eventually(
        stage.bounds.cleanUp,
        async () => ((await stage.harness.leftovers?.(stage.namespace)) ?? 0) <= left,
        'nothing left in the backend',
      );
    },
  },
];

async function assertClosed(stage: Stage, before: OpenHandles): Promise<void> {
  await stage.eventually(
    1_000,
    () => stage.clock.count === 0 && openHandles().since(before).length === 0,
    `${stage.clock.count} timers and ${openHandles().since(before).join(', ') || 'no handles'} are closed`,
  );
}
