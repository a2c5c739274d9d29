import assert from 'node:assert/strict';
import { LockBusyError, LockLostError } from '../../api/errors.js';
import { revocation, type CaseDefinition } from '../case-definition.js';
import { assertBetween, rejectsWith } from '../expectations.js';

/** Several keys as one lock: the core handles this, relying on the backend's releases. */
export const severalKeysCases: readonly CaseDefinition[] = [
  {
    id: '#49',
    title: 'all or nothing: what was taken is free again when one key stays busy, after one shared wait',
    async run(stage) {
      const [ann, bob, cid] = await stage.processes(3);
      await ann.locks.acquire('c');
      const wait = 200;
      const took = await stage.duration(() =>
        rejectsWith(LockBusyError, bob.locks.acquire(['a', 'b', 'c'], { wait }), 'one busy key'),
      );
      assertBetween(took, wait - 1, wait + stage.time.tolerance, 'the shared wait');
      for (const key of ['a', 'b']) assert.ok(await cid.tryAcquire(key), `"${key}" is free again`);
    },
  },
  {
    id: '#49b',
    title:
      'whichever key is busy, a call that does not wait leaves nothing, and one that waits has nothing behind that key',
    async run(stage) {
      const [ann, bob, cid] = await stage.processes(3);
      const keys = ['a', 'b', 'c'];
      for (const busy of keys) {
        const held = await ann.locks.acquire(busy);
        assert.equal(await bob.tryAcquire(keys), null, `"${busy}" is busy`);
        for (const key of keys.filter((each) => each !== busy)) await (await cid.locks.acquire(key)).release();
        const waiting = await stage.standInLine(bob, busy, {}, keys);
        for (const key of keys.filter((each) => each > busy)) await (await cid.locks.acquire(key)).release();
        for (const key of keys.filter((each) => each < busy)) assert.equal(await cid.tryAcquire(key), null);
        await held.release();
        const lock = await waiting.lock;
        assert.deepEqual(lock.keys, keys);
        assert.ok(lock.isHeld());
        for (const key of keys) assert.equal(await cid.tryAcquire(key), null, `"${key}" is held`);
        assert.equal(await lock.release(), 'released');
      }
    },
  },
  {
    id: '#49c',
    title: 'a call that leaves while it waits for one of several keys leaves nothing',
    async run(stage) {
      const [ann, bob, cid] = await stage.processes(3);
      const keys = ['a', 'b', 'c'];
      for (const busy of keys) {
        const held = await ann.locks.acquire(busy);
        const leaving = new AbortController();
        const waiting = await stage.standInLine(bob, busy, { signal: leaving.signal }, keys);
        leaving.abort(new Error('enough'));
        await assert.rejects(waiting.lock, /enough/);
        await held.release();
        const lock = await cid.locks.acquire(keys);
        assert.equal(await lock.release(), 'released');
        assert.deepEqual([...bob.locks.admin.held(), ...bob.locks.admin.waiting()], []);
      }
    },
  },
  {
    id: '#50',
    title: 'two processes that want the same two keys in opposite order never wait for each other',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const loop = async (process: typeof ann, keys: readonly string[]) => {
        for (let round = 0; round < stage.rounds(20); round += 1) {
          const lock = await process.locks.acquire(keys, { wait: 120_000 });
          await lock.release();
        }
      };
      await Promise.all([loop(ann, ['a', 'b']), loop(bob, ['b', 'a'])]);
    },
  },
  {
    id: '#51',
    title: 'a key that is named twice is taken once',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const lock = await ann.locks.acquire(['b', 'a', 'b']);
      assert.deepEqual(lock.keys, ['a', 'b']);
      assert.equal(await lock.release(), 'released');
      assert.ok(await bob.tryAcquire(['a', 'b']));
    },
  },
  {
    id: '#52',
    title: 'the loss of one key aborts the whole lock',
    needs: [revocation],
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const lock = await ann.locks.acquire(['a', 'b'], stage.shortLease);
      const { signal } = lock;
      await stage.revoke('b');
      await stage.eventually(stage.lease, () => signal.aborted, 'the signal aborts');
      assert.equal(lock.isHeld(), false);
      assert.equal(await lock.release(), 'lost');
      const next = await bob.locks.acquire(['a', 'b'], { wait: stage.bounds.handoff });
      assert.ok(next.isHeld(), 'the other key is free too');
    },
  },
  {
    id: '#52b',
    title: 'a key that is lost while another one is waited for makes the whole lock fail',
    needs: [revocation],
    async run(stage) {
      const [ann, bob, cid] = await stage.processes(3);
      const held = await ann.locks.acquire('b');
      const waiting = await stage.standInLine(bob, 'b', stage.shortLease, ['a', 'b', 'c']);
      await stage.revoke('a');
      const lost = () => bob.events.some(({ name }) => name === 'lost');
      await stage.eventually(stage.lease, lost, 'the loss of the first is noticed');
      await held.release();
      await rejectsWith(LockLostError, waiting.lock, 'the first was lost');
      const next = await cid.locks.acquire(['a', 'b', 'c'], { wait: stage.bounds.handoff });
      assert.ok(next.isHeld(), 'all keys are free');
    },
  },
];
