import assert from 'node:assert/strict';
import { LockConfigError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { type CaseDefinition, type Need, sharedMode, unclaimed } from '../case-definition.js';
import type { DirectCaller } from '../direct-caller.js';
import { rejectsWith } from '../expectations.js';

const listing: Need = ({ capabilities }) => (capabilities.list ? undefined : unclaimed('it has no list'));
const limits: Need = ({ capabilities }) => (capabilities.limits ? undefined : unclaimed('it has no limits'));
const minHold: Need = ({ capabilities }) => (capabilities.minHold ? undefined : unclaimed('it has no minHold'));

// More than one page on any backend, but few enough for backends that use a file or node per lock.
const MANY = 600;
const IN_FLIGHT = 50;

/** Operators can see all locks in a namespace. */
export const listingCases: readonly CaseDefinition[] = [
  {
    id: '#59',
    title: 'list: each key that is held, with its instance, token and end, and none that is free; or it is refused',
    async run(stage) {
      if (!stage.capabilities.list) {
        const { locks } = await stage.process();
        const list = async () => {
          for await (const lock of locks.admin.list()) assert.fail(`"${lock.key}" was listed`);
        };
        await rejectsWith(LockConfigError, list(), 'list()');
        return;
      }
      const [ann, bob] = await stage.directs(2);
      assert.deepEqual(await listOf(ann), []);
      const [grant] = [await ann.take('a'), await bob.take('b')];
      assert.equal(await bob.release(await bob.take('free')), 'released');
      const [first, second, ...others] = await listOf(bob);
      assert.deepEqual(others, []);
      assert.deepEqual([first?.key, second?.key], ['a', 'b']);
      assert.deepEqual([first?.state, first?.mode, first?.holders], ['held', 'exclusive', 1]);
      assert.equal(first?.fencingToken, grant.fencingToken);
      assert.deepEqual([first.instances, second?.instances], [[ann.instance.name], [bob.instance.name]]);
      assert.ok(first.expiresIn === null || first.expiresIn > 0, 'it says when it ends');
      assert.ok(first.since === null || first.since instanceof Date, 'it says since when, or does not know');
      assert.equal(await ann.release(grant), 'released');
      assert.deepEqual(keysOf(await listOf(ann)), ['b']);
    },
  },
  {
    id: '#59a',
    title: 'list: only keys with the prefix, as they were given, and only those of the namespace',
    needs: [listing],
    async run(stage) {
      const [ann] = await stage.directs(1);
      const keys = [
        'order:1',
        'order:10',
        'order',
        'order%31',
        'or*er:1',
        'or_er:1',
        'ORDER:1',
        '[o]',
        'é:/1',
        'é:/2 3',
      ];
      for (const key of keys) await ann.take(key);
      const other = await stage.process(`${stage.namespace}-other`);
      const foreign = await other.locks.acquire('order:99');
      assert.deepEqual(keysOf(await listOf(ann)), [...keys].sort());
      for (const prefix of ['order', 'order:1', 'or*', 'or_', 'order%', '[o', 'é:/', 'é:/2 ', 'nobody']) {
        const expected = keys.filter((key) => key.startsWith(prefix)).sort();
        assert.deepEqual(keysOf(await listOf(ann, prefix)), expected, `the prefix "${prefix}"`);
      }
      await foreign.release();
    },
  },
  {
    id: '#59b',
    title: 'list: shared locks with the instances of their holders, and how many wait',
    needs: [listing, sharedMode],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      await ann.take('page', { mode: 'shared' });
      await ann.take('page', { mode: 'shared' });
      const last = await bob.take('page', { mode: 'shared' });
      const waiter = await stage.askInLine(cid, 'page');
      const [lock] = await listOf(cid);
      assert.deepEqual([lock?.mode, lock?.holders], ['shared', 3]);
      assert.deepEqual([...(lock?.instances ?? [])].sort(), [ann.instance.name, bob.instance.name].sort());
      assert.equal(lock?.fencingToken, last.fencingToken);
      assert.ok([null, 1].includes(lock.waiters), `one waits, but ${String(lock.waiters)} are listed`);
      await cid.release(waiter.request);
    },
  },
  {
    id: '#59c',
    title: 'list: limited locks with their limit and what is taken of it',
    needs: [listing, limits],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      await ann.take('report', { limited: { limit: 5, weight: 2 } });
      const latest = await bob.take('report', { limited: { limit: 4, weight: 1 } });
      const [lock] = await listOf(ann);
      assert.deepEqual([lock?.mode, lock?.holders, lock?.limit, lock?.used], ['limited', 2, 4, 3]);
      assert.deepEqual([...(lock?.instances ?? [])].sort(), [ann.instance.name, bob.instance.name].sort());
      assert.equal(lock?.fencingToken, latest.fencingToken);
    },
  },
  {
    id: '#59d',
    title: 'list: a retained key is in it, and a lease that has ended is not',
    needs: [listing, minHold],
    async run(stage) {
      const [ann] = await stage.directs(1);
      await ann.take('ended', { lease: stage.lease });
      assert.equal(await ann.release(await ann.take('job'), { keepFor: 60_000 }), 'released');
      await stage.leaseEnds();
      const [lock, ...others] = await listOf(ann);
      assert.deepEqual(keysOf(others), []);
      assert.deepEqual([lock?.key, lock?.state, lock?.holders, lock?.instances], ['job', 'retained', 0, []]);
    },
  },
  {
    id: '#59e',
    title: 'list: all of many locks, each once, while others come and go',
    needs: [listing],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const keys = Array.from({ length: stage.rounds(MANY) }, (_, index) => `held:${index}`);
      for (let at = 0; at < keys.length; at += IN_FLIGHT) {
        await Promise.all(keys.slice(at, at + IN_FLIGHT).map((key) => ann.take(key)));
      }
      const done = new AbortController();
      const others = (async () => {
        for (let round = 0; !done.signal.aborted; round += 1) await bob.release(await bob.take(`brief:${round}`));
      })();
      const listed = await listOf(ann, 'held:');
      done.abort();
      await others;
      assert.deepEqual(keysOf(listed), [...keys].sort());
    },
  },
  {
    id: '#59f',
    title: 'inspect: the same instances and since as in the list',
    needs: [listing],
    async run(stage) {
      const { shared, limits, minHold } = stage.capabilities;
      const [ann, bob, eve] = await stage.directs(3);
      await ann.take('a');
      if (shared) {
        await ann.take('page', { mode: 'shared' });
        await bob.take('page', { mode: 'shared' });
      }
      if (limits) {
        await ann.take('report', { limited: { limit: 5, weight: 2 } });
        await bob.take('report', { limited: { limit: 5, weight: 1 } });
      }
      if (minHold) assert.equal(await ann.release(await ann.take('job'), { keepFor: 60_000 }), 'released');
      for (const { key, instances, since } of await listOf(eve)) {
        const info = await eve.backend.inspect?.(key);
        assert.deepEqual(info?.instances.toSorted(), instances.toSorted(), `the instances of "${key}"`);
        assert.deepEqual(info.since, since, `since when "${key}" is held`);
        if (key === 'a') assert.deepEqual(instances, [ann.instance.name]);
      }
    },
  },
];

/** Sorted by key. */
async function listOf({ backend }: DirectCaller, prefix = ''): Promise<LockInfo[]> {
  const locks: LockInfo[] = [];
  for await (const lock of backend.list?.({ prefix }) ?? assert.fail('it claims a list and has none')) locks.push(lock);
  return locks.sort((one, other) => (one.key < other.key ? -1 : 1));
}

function keysOf(locks: readonly LockInfo[]): string[] {
  return locks.map(({ key }) => key);
}
