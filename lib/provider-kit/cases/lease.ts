import assert from 'node:assert/strict';
import { leaseOfItsOwn, ownClock, type CaseDefinition } from '../case-definition.js';
import { granted } from '../direct-caller.js';
import { assertBetween } from '../expectations.js';
import type { Lock } from '../../api/lock.js';
import type { Stage } from '../stage.js';
import type { TestProcess } from '../test-process.js';
import { WrongClock } from '../wrong-clock.js';

const HOUR = 3_600_000;
/** How long, in leases, a case lets the watchdog renew a lock. */
const LEASES = 3.5;

/** Leases expire on time, never early, and are renewed for as long as the lock is held. */
export const leaseCases: readonly CaseDefinition[] = [
  {
    id: '#21',
    title: 'a lease that is not renewed ends in its time, not before its holder believes so',
    needs: [leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grant = await ann.take('order', { lease: stage.lease });
      const takenAt = stage.clock.now();
      const latest = takenAt + stage.lease + stage.bounds.expiry + stage.time.tolerance;
      let next = await bob.ask('order');
      while (next === 'busy') {
        assertBetween(stage.clock.now(), 0, latest, 'the end of the lease');
        await stage.sleep(10);
        next = await bob.ask('order');
      }
      assertBetween(stage.clock.now(), grant.validUntil, latest, 'the end of the lease');
    },
  },
  {
    id: '#21b',
    title: 'the end of a lease that nobody releases is noticed by the waiter',
    needs: [leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grant = await ann.take('order', { lease: stage.lease });
      const limit = stage.lease + stage.bounds.takeOver;
      await stage.within(limit, bob.take('order', { wait: limit * 2 }), 'taking over');
      assert.ok(stage.clock.now() >= grant.validUntil, 'not before its holder believes so');
    },
  },
  {
    id: '#21c',
    title: 'a lease ends in its time for a process whose wall clock is an hour fast or slow',
    needs: [leaseOfItsOwn, ownClock],
    alone: true,
    async run(stage) {
      const ann = await stage.direct();
      for (const error of [HOUR, -HOUR]) {
        const key = `order ${error}`;
        const clock = new WrongClock(stage.clock, error);
        const bob = await stage.direct(clock);
        await ann.take(key, { lease: stage.lease });
        assert.equal(await clock.during(() => bob.ask(key)), 'busy', 'a lease that has not ended');
        await stage.leaseEnds();
        await clock.during(() => stage.assertFree(bob, key));
        // Leases granted to Bob expire on time for others.
        await clock.during(() => bob.take(key, { lease: stage.lease }));
        assert.equal(await ann.ask(key), 'busy', 'a lease of a process with another clock');
        await stage.leaseEnds();
        await stage.assertFree(ann, key);
      }
    },
  },
  {
    id: '#22',
    title: 'the watchdog keeps a lock for three leases and more, and others stay out',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      for (let attempt = 1; ; attempt += 1) {
        // A stalled machine loses a short lease. A broken watchdog loses a long one, too.
        const lease = stage.lease * 2 ** (attempt - 1);
        const options = stage.capabilities.lease === 'per-lock' ? { lease } : {};
        const lock = await ann.locks.acquire('order', { wait: stage.bounds.takeOver, ...options });
        const leases = await leasesKept(stage, lock, lease, bob);
        const outcome = await lock.release();
        if (leases < LEASES && attempt < stage.time.attempts) continue;
        assert.equal(leases, LEASES, 'how many leases the watchdog has kept the lock for');
        assert.equal(outcome, 'released');
        return;
      }
    },
  },
  {
    id: '#24',
    title: 'the lease asked for is in force from the grant on, also when handed over by a release',
    needs: [leaseOfItsOwn],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const first = await ann.take('order');
      const waiter = await stage.askInLine(bob, 'order', { lease: stage.lease });
      await ann.release(first);
      const { validUntil } = granted(await waiter.answer);
      await cid.assertBusy('order');
      await stage.leaseEnds();
      assert.ok(stage.clock.now() >= validUntil, 'its holder believes in it no longer than that');
      await cid.take('order');
    },
  },
  {
    id: '#31',
    title: 'a release that meets a renewal frees the key for good',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      for (let round = 0; round < stage.rounds(20); round += 1) {
        const lock = await ann.locks.acquire('order', stage.shortLease);
        // The backend may process either request first, but the key must be free afterwards.
        const extension = lock.extend().catch(() => undefined);
        assert.equal(await lock.release(), 'released');
        await extension;
        const next = await bob.tryAcquire('order');
        assert.ok(next, 'no renewal brings back what was released');
        await next.release();
      }
    },
  },
  {
    id: '#32',
    title: 'a release settles also while somebody watches the signal',
    async run(stage) {
      const { locks } = await stage.process();
      const lock = await locks.acquire('order', stage.shortLease);
      lock.signal.addEventListener('abort', () => assert.fail('a release is no loss'));
      await stage.sleep(stage.lease * 0.4);
      assert.equal(await stage.within(stage.bounds.noAnswer, lock.release(), 'the release'), 'released');
    },
  },
  {
    id: '#34',
    title: 'maxHold frees the key and aborts, although the task still runs',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const maxHold = 200;
      await ann.locks.withLock(
        'order',
        async (lock) => {
          const next = await bob.locks.acquire('order', { wait: maxHold + stage.bounds.handoff });
          assert.ok(lock.signal.aborted, 'the first holder knows');
          assert.equal(lock.isHeld(), false);
          await next.release();
        },
        { maxHold, onLost: 'ignore' },
      );
    },
  },
];

/** The number of leases, out of {@link LEASES}, for which the lock stays held while `other` tries to acquire it. */
async function leasesKept(stage: Stage, lock: Lock, lease: number, other: TestProcess): Promise<number> {
  for (let kept = 0; kept < LEASES; kept += 0.5) {
    await stage.sleep(lease / 2);
    const next = await other.tryAcquire('order');
    const isHeld = lock.isHeld();
    await next?.release();
    if (!isHeld) return kept;
    assert.equal(next, null, 'nobody enters while the holder believes that it holds the lock');
  }
  return LEASES;
}
