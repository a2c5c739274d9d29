import assert from 'node:assert/strict';
import { LockBusyError, LockUnavailableError } from '../../api/errors.js';
import type { CaseDefinition } from '../case-definition.js';
import { assertBetween, rejection, rejectsWith } from '../expectations.js';

const LONG = { wait: 120_000 };

/** Queues: waiting times, the order of callers, and how callers leave. */
export const waitingCases: readonly CaseDefinition[] = [
  {
    id: '#12',
    title: 'with a wait of 0 a busy key is answered at once',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      await ann.locks.acquire('order');
      const took = await stage.duration(async () => {
        assert.equal(await bob.tryAcquire('order'), null);
      });
      assertBetween(took, 0, stage.time.tolerance, 'one attempt');
      assert.equal(bob.queuedFor('order'), 0, 'it has not queued');
    },
  },
  {
    id: '#13',
    title: 'a wait ends when it is over, with LockBusyError',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      await ann.locks.acquire('order');
      const wait = 200;
      const took = await stage.duration(() => rejectsWith(LockBusyError, bob.locks.acquire('order', { wait }), 'busy'));
      assertBetween(took, wait - 1, wait + stage.time.tolerance, 'the wait');
    },
  },
  {
    id: '#15',
    title: 'an aborted signal rejects with its reason and touches nothing',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const reason = new Error('changed my mind');
      const signal = AbortSignal.abort(reason);
      assert.equal(await rejection(ann.locks.acquire('order', { signal }), 'aborted'), reason);
      assert.ok(await bob.tryAcquire('order'), 'the key is free');
    },
  },
  {
    id: '#16',
    title: 'an abort while waiting rejects at once and leaves no place in the queue',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const cid = await stage.direct();
      const held = await ann.locks.acquire('order');
      const leaving = new AbortController();
      const waiter = await stage.standInLine(bob, 'order', { signal: leaving.signal });
      const reason = new Error('changed my mind');
      const took = await stage.duration(async () => {
        leaving.abort(reason);
        assert.equal(await rejection(waiter.lock, 'aborted'), reason);
      });
      assertBetween(took, 0, stage.time.tolerance, 'leaving');
      await held.release();
      await stage.assertFree(cid, 'order');
    },
  },
  {
    id: '#17',
    title: 'an abort that meets its grant leaks no lock',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const cid = await stage.direct();
      const reason = new Error('changed my mind');
      for (let round = 0; round < stage.rounds(24); round += 1) {
        const held = await ann.locks.acquire('order', LONG);
        const leaving = new AbortController();
        const waiter = await stage.standInLine(bob, 'order', { signal: leaving.signal });
        const gone = waiter.lock.then(
          (lock) => lock.release(),
          (error: unknown) => {
            assert.equal(error, reason);
          },
        );
        // Tries both orders, with gaps of zero, a few microtasks, and one event-loop turn.
        const leave = () => {
          leaving.abort(reason);
        };
        const free = () => held.release();
        const [first, second] = round % 2 ? [leave, free] : [free, leave];
        const done = first();
        if (round % 3 === 1) await Promise.resolve();
        if (round % 3 === 2) await new Promise((resolve) => setImmediate(resolve));
        await Promise.all([done, second(), gone]);
        await stage.assertFree(cid, 'order');
      }
    },
  },
  {
    id: '#18',
    title: 'a key that becomes free just before the wait ends is still granted',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const { clock, time } = stage;
      const wait = 4 * time.pause;
      // It isn't the provider's fault if its final backend check takes longer than the rest of the wait. Several
      // attempts reveal a provider that doesn't check at all.
      for (let tries = 10; ; tries -= 1) {
        const held = await ann.locks.acquire('order');
        const end = clock.now() + wait;
        const asked = Promise.allSettled([bob.locks.acquire('order', { wait })]);
        await stage.sleep(end - time.pause - clock.now());
        await held.release();
        const [answer] = await asked;
        if (answer.status === 'rejected') {
          const reason: unknown = answer.reason;
          // A busy machine may send its request so late in the wait that no response arrives in time.
          const isLate = reason instanceof LockBusyError || reason instanceof LockUnavailableError;
          if (isLate && tries > 1) continue;
          throw reason;
        }
        assert.ok(answer.value.isHeld(), 'granted at the last moment');
        return;
      }
    },
  },
  {
    id: '#19',
    title: 'a release wakes the next waiter within the bound',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      for (let round = 0; round < 5; round += 1) {
        const held = await ann.locks.acquire('order', LONG);
        const waiter = await stage.standInLine(bob, 'order');
        await held.release();
        const next = await stage.within(stage.bounds.handoff, waiter.lock, 'the handoff');
        await next.release();
      }
    },
  },
  {
    id: '#20',
    title: 'all waiters are served: in order among all processes if fair, in order within a process if the core queues',
    async run(stage) {
      const holder = await stage.process();
      const processes = await stage.processes(3);
      const held = await holder.locks.acquire('order');
      const served: number[] = [];
      const turns: Promise<unknown>[] = [];
      let slowest = 0;
      for (let turn = 0; turn < 9; turn += 1) {
        const process = processes[turn % 3] ?? holder;
        // A backend with a queue orders requests by age, but only as precisely as message delays allow, and they can be
        // long on a busy machine.
        const travel = await stage.duration(async () => (await process.locks.acquire('elsewhere')).release());
        slowest = Math.max(slowest, travel);
        if (turn >= 3) await stage.sleep(Math.max(50, 5 * slowest));
        const waiter = await stage.standInLine(process, 'order');
        turns.push(
          waiter.lock.then(async (lock) => {
            served.push(turn);
            // Longer than a process may keep handing one grant from caller to caller.
            await stage.sleep(20);
            await lock.release();
          }),
        );
      }
      await held.release();
      await Promise.all(turns);
      const sorted = (list: readonly number[]) => list.toSorted((a, b) => a - b);
      assert.deepEqual(sorted(served), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
      if (stage.capabilities.fair) assert.deepEqual(served, sorted(served), 'first come, first served');
      for (const process of [0, 1, 2]) {
        const own = served.filter((turn) => turn % 3 === process);
        assert.deepEqual(own, sorted(own), 'first come, first served within a process');
      }
    },
  },
];
