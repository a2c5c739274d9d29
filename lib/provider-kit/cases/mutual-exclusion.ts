import type { Lock } from '../../api/lock.js';
import assert from 'node:assert/strict';
import { revocation, leaseOfItsOwn, type CaseDefinition } from '../case-definition.js';

const MANY = { wait: 120_000 };

/** One holder at a time, and a release that frees only the caller's own lock. */
export const mutualExclusionCases: readonly CaseDefinition[] = [
  {
    id: '#1',
    title: 'a free key is granted, and is then busy for the same process and for another one',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const lock = await ann.tryAcquire('order');
      assert.ok(lock?.isHeld(), 'a free key is granted');
      assert.equal(await ann.tryAcquire('order'), null);
      assert.equal(await bob.tryAcquire('order'), null);
    },
  },
  {
    id: '#2',
    title: 'different keys never block each other, nor does a key that is a prefix of another',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      for (const family of [
        ['order', 'order:1', 'order:12', 'orde'],
        ['a', 'ab', 'a/b', 'a:b'],
      ]) {
        const locks = [];
        for (const [index, key] of family.entries()) {
          const lock = await (index % 2 ? ann : bob).tryAcquire(key);
          assert.ok(lock, `"${key}" should be free`);
          locks.push(lock);
        }
        for (const lock of locks) assert.equal(await lock.release(), 'released');
      }
    },
  },
  {
    id: '#3',
    title: 'after its release a key can be taken at once, by the same and by another process',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      for (const process of [ann, ann, bob, bob, ann, bob]) {
        const lock = await process.tryAcquire('order');
        assert.ok(lock, 'free again');
        assert.equal(await lock.release(), 'released');
      }
    },
  },
  {
    id: '#4',
    title: 'a failed attempt leaves the hold and the end of its lease as they were',
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const steady = await ann.take('steady');
      await bob.assertBusy('steady');
      await ann.assertRenewable(steady);
      if (stage.capabilities.lease === 'session') return;
      await ann.take('ending', { lease: stage.lease });
      await stage.sleep(stage.lease * 0.3);
      await bob.assertBusy('ending');
      await stage.leaseEnds(stage.lease * 0.7);
      await cid.take('ending');
    },
  },
  {
    id: '#5',
    title: 'a second release answers lost, and does not free the lock of the next holder',
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const first = await ann.take('order');
      assert.equal(await ann.release(first), 'released');
      assert.equal(await ann.release(first), 'lost');
      const second = await bob.take('order');
      assert.equal(await ann.release(first), 'lost');
      await cid.assertBusy('order');
      await bob.assertRenewable(second);
    },
  },
  {
    id: '#6',
    title: 'a release by a holder whose lease is over answers lost, and does not free the lock of the next holder',
    needs: [leaseOfItsOwn],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const stale = await ann.take('order', { lease: stage.lease });
      await stage.leaseEnds();
      const next = await bob.take('order');
      assert.equal(await ann.release(stale), 'lost');
      await cid.assertBusy('order');
      await bob.assertRenewable(next);
    },
  },
  {
    id: '#6b',
    title:
      'a release by a holder whose lock was taken away answers lost, and does not free the lock of the next holder',
    needs: [revocation],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const stale = await ann.take('order');
      await stage.revoke('order');
      const next = await bob.take('order', { wait: stage.bounds.handoff });
      assert.equal(await ann.release(stale), 'lost');
      await cid.assertBusy('order');
      await bob.assertRenewable(next);
    },
  },
  {
    id: '#7',
    title: 'a release answers when the key is free, also if somebody takes it in between',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      for (let round = 0; round < stage.rounds(20); round += 1) {
        const lock = await ann.locks.acquire('alone');
        assert.equal(await lock.release(), 'released');
        const next = await bob.tryAcquire('alone');
        assert.ok(next, 'a release that was confirmed has freed the key');
        await next.release();

        const contended = await ann.locks.acquire('contended');
        const waiter = await stage.standInLine(bob, 'contended');
        assert.equal(await contended.release(), 'released');
        await (await waiter.lock).release();
      }
    },
  },
  {
    id: '#8',
    title: 'a holder does not enter twice by itself; re-entry is counted and frees with the last',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const lock = await ann.locks.acquire('order');
      assert.equal(await ann.tryAcquire('order'), null);
      await lock.release();
      await ann.locks.withLock('order', async (outer) => {
        const compare = (inner: Lock): void => {
          assert.equal(inner.fencingToken, outer.fencingToken);
        };
        await ann.locks.withLock('order', compare, { within: outer });
        assert.equal(await bob.tryAcquire('order'), null, 'the inner end does not free it');
      });
      assert.ok(await bob.tryAcquire('order'), 'the outer end frees it');
    },
  },
  {
    id: '#9',
    title: 'many contenders of one process: never two inside, and all get in',
    async run(stage) {
      const { locks } = await stage.process();
      let inside = 0;
      let entries = 0;
      const contender = () =>
        locks.withLock(
          'counter',
          async () => {
            inside += 1;
            assert.equal(inside, 1, 'one at a time');
            await stage.sleep(0);
            inside -= 1;
            entries += 1;
          },
          MANY,
        );
      const contenders = stage.rounds(100);
      await Promise.all(Array.from({ length: contenders }, contender));
      assert.equal(entries, contenders);
    },
  },
  {
    id: '#10',
    title: 'four processes on an unguarded read and write: no update is lost',
    async run(stage) {
      const processes = await stage.processes(4);
      const rounds = stage.rounds(25);
      let account = 0;
      const deposits = processes.map(async ({ locks }) => {
        for (let round = 0; round < rounds; round += 1) {
          await locks.withLock(
            'account',
            async () => {
              const balance = account;
              await stage.sleep(0);
              account = balance + 1;
            },
            MANY,
          );
        }
      });
      await Promise.all(deposits);
      assert.equal(account, 4 * rounds);
    },
  },
  {
    id: '#40',
    title: 'what one process holds, another waits for',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const order: string[] = [];
      const lock = await ann.locks.acquire('order');
      const waiter = await stage.standInLine(bob, 'order');
      const taken = waiter.lock.then(() => order.push('taken'));
      await stage.sleep(stage.time.pause);
      order.push('released');
      await lock.release();
      await taken;
      assert.deepEqual(order, ['released', 'taken']);
    },
  },
];
