import assert from 'node:assert/strict';
import { LockLostError } from '../../api/errors.js';
import { cutOff, revocation, type CaseDefinition } from '../case-definition.js';
import { rejectsWith } from '../expectations.js';

/** Losses are signaled, and only losses. */
export const lossCases: readonly CaseDefinition[] = [
  {
    id: '#25',
    title: 'a release does not abort the signal',
    async run(stage) {
      const { locks } = await stage.process();
      const lock = await locks.acquire('order', stage.shortLease);
      const { signal } = lock;
      await lock.release();
      await stage.sleep(stage.lease * 1.2);
      assert.equal(signal.aborted, false);
    },
  },
  {
    id: '#26',
    title: 'a lock that is taken away aborts its signal within a lease',
    needs: [revocation],
    async run(stage) {
      const { locks } = await stage.process();
      const lock = await locks.acquire('order', stage.shortLease);
      const { signal } = lock;
      await stage.revoke('order');
      await stage.eventually(stage.lease, () => signal.aborted, 'the signal aborts');
      assert.ok(signal.reason instanceof LockLostError, 'the signal has the reason');
      assert.equal(lock.isHeld(), false);
    },
  },
  {
    id: '#27',
    title: 'after a loss the signal is aborted for who reads it first, and a release answers lost',
    needs: [revocation],
    async run(stage) {
      const { locks } = await stage.process();
      const task = locks.withLock(
        'order',
        async (lock) => {
          await stage.revoke('order');
          await stage.eventually(stage.lease, () => !lock.isHeld(), 'the loss is known');
          assert.ok(lock.signal.aborted, 'aborted for who reads it first');
          assert.equal(await lock.release(), 'lost');
          return 'done';
        },
        stage.shortLease,
      );
      const { outcome } = await rejectsWith(LockLostError, task, 'a lost lock');
      assert.deepEqual(outcome, { status: 'fulfilled', value: 'done' });
    },
  },
  {
    id: '#28',
    title: 'a holder that is cut off learns of its loss at its deadline, before anybody else has the lock',
    needs: [cutOff],
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const lock = await ann.locks.acquire('order', stage.shortLease);
      const { signal } = lock;
      const waiter = await stage.standInLine(bob, 'order');
      await stage.cutOff(ann);
      const next = waiter.lock.then(() => {
        assert.equal(lock.isHeld(), false, 'two holders');
      });
      next.catch(() => undefined);
      await stage.sleep(lock.remaining());
      // A reply that arrived before the cut may have renewed the lock again.
      await stage.sleep(lock.remaining());
      assert.equal(lock.isHeld(), false);
      await stage.eventually(0, () => signal.aborted, 'the signal aborts at the deadline');
      await stage.within(stage.lease + stage.bounds.takeOver, next, 'taking over');
    },
  },
  {
    id: '#29',
    title: 'renewals that fail for less than a lease lose nothing',
    needs: [cutOff],
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      // Long enough to reconnect during the lease's second half.
      const perLock = stage.capabilities.lease === 'per-lock';
      const lease = perLock ? 3 * stage.lease : stage.lease;
      const lock = await ann.locks.acquire('order', perLock ? { lease } : {});
      const { signal } = lock;
      await stage.cutOff(ann);
      await stage.sleep(lease / 2);
      await stage.restore(ann);
      await stage.sleep(lease);
      const other = await bob.tryAcquire('order');
      assert.ok(lock.isHeld(), 'the lock should be held after the outage');
      assert.equal(signal.aborted, false);
      assert.equal(other, null);
      assert.equal(await lock.release(), 'released');
    },
  },
];
