import assert from 'node:assert/strict';
import type { LockCapabilities } from '../../api/lock-provider.js';
import { LockConfigError } from '../../api/errors.js';
import type { LockOptions } from '../../api/lock-options.js';
import { type CaseDefinition, sharedMode, unclaimed } from '../case-definition.js';
import { granted } from '../direct-caller.js';
import { assertBetween, rejectsWith } from '../expectations.js';
import type { Stage } from '../stage.js';

/** A claimed capability is honored; an unclaimed one is refused, never silently replaced by something else. */
export const capabilityCases: readonly CaseDefinition[] = [
  {
    id: '#57',
    title: 'the backend claims what its harness does, and always the same',
    async run(stage) {
      const backends = [await stage.harness.create(), await stage.harness.create()].map((provider) =>
        stage.caller(provider),
      );
      // Optional capabilities have a default.
      const defaults = { maxLease: Infinity, wideTokens: false, limits: false, list: false, ordered: false };
      const claimed = (capabilities: LockCapabilities) => ({ ...defaults, ...capabilities });
      for (const { backend } of backends) assert.deepEqual(claimed(backend.capabilities), claimed(stage.capabilities));
    },
  },
  {
    id: '#57a',
    title: 'shared: readers hold together and exclude writers, who exclude readers; or shared mode is refused',
    async run(stage) {
      if (!stage.capabilities.shared) return assertRefused(stage, { mode: 'shared' });
      const [ann, bob, cid] = await stage.directs(3);
      const readers = [await ann.take('page', { mode: 'shared' }), await bob.take('page', { mode: 'shared' })] as const;
      await cid.assertBusy('page');
      assert.equal(await ann.release(readers[0]), 'released');
      await cid.assertBusy('page');
      await bob.assertRenewable(readers[1]);
      assert.equal(await bob.release(readers[1]), 'released');
      const writer = await cid.take('page');
      await ann.assertBusy('page', { mode: 'shared' });
      assert.equal(await cid.release(writer), 'released');
      await ann.take('page', { mode: 'shared' });
    },
  },
  {
    id: '#57b',
    title: 'shared and fair: a waiting writer is not overtaken by readers, and waiting readers enter together',
    needs: [
      ({ capabilities }) =>
        capabilities.shared && capabilities.fair
          ? undefined
          : unclaimed('it does not claim to be both shared and fair'),
    ],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const reader = await ann.take('page', { mode: 'shared' });
      const writer = await stage.askInLine(bob, 'page');
      await cid.assertBusy('page', { mode: 'shared' });
      const behind = [
        await stage.askInLine(ann, 'page', { mode: 'shared' }),
        await stage.askInLine(cid, 'page', { mode: 'shared' }),
      ];
      await ann.release(reader);
      await bob.release(granted(await stage.within(stage.bounds.handoff, writer.answer, 'the writer')));
      const together = Promise.all(behind.map(({ answer }) => answer));
      const answers = await stage.within(stage.bounds.handoff, together, 'the readers behind, together');
      const [one, other] = answers.map((answer) => granted(answer).fencingToken);
      assert.equal(one, other, 'readers that are granted together share a token');
    },
  },
  {
    id: '#57c',
    title: 'lease: each lock has one of its own, which no renewal shortens; or a lease for one lock is refused',
    async run(stage) {
      if (stage.capabilities.lease === 'session') return assertRefused(stage, { lease: '1s' });
      const [ann, bob] = await stage.directs(2);
      await ann.take('short', { lease: stage.lease });
      const long = await ann.take('long', { lease: 4 * stage.lease + 2 * stage.bounds.expiry });
      await stage.leaseEnds();
      await bob.take('short');
      await bob.assertBusy('long');
      await ann.renew(long, stage.lease / 2);
      await stage.leaseEnds(stage.lease / 2);
      await bob.assertBusy('long');
    },
  },
  {
    id: '#57d',
    title: 'minHold: released early, the key stays retained until it has passed; or minHold is refused',
    async run(stage) {
      if (!stage.capabilities.minHold) return assertRefused(stage, { minHold: '1s' });
      const [ann, bob] = await stage.directs(2);
      const minHold = 2 * stage.lease;
      const start = stage.clock.now();
      const grant = await ann.take('report', { lease: stage.lease, minHold });
      assert.equal(await ann.release(grant, { keepFor: minHold }), 'released');
      const info = await ann.backend.inspect?.('report');
      if (info) assert.equal(info.state, 'retained');
      await bob.assertBusy('report');
      assert.equal(await ann.renew(grant), 'lost', 'a retained key has no holder');
      assert.equal(await ann.release(grant), 'lost', 'a second release does not free a retained key');
      await bob.assertBusy('report');
      const limit = minHold + stage.bounds.takeOver;
      await stage.within(limit, bob.take('report', { wait: 2 * limit }), 'the end of minHold');
      assertBetween(stage.clock.now() - start, minHold - 5, limit + stage.time.tolerance, 'the end of minHold');
    },
  },
  {
    id: '#57e',
    title: 'minHold: it is kept also by a holder that has crashed with a shorter lease',
    needs: [({ capabilities }) => (capabilities.minHold ? undefined : unclaimed('it has no minHold'))],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const minHold = 3 * stage.lease;
      const start = stage.clock.now();
      await ann.take('report', { lease: stage.lease, minHold });
      await ann.backend.close();
      await stage.sleep(stage.lease + stage.time.pause);
      await bob.assertBusy('report');
      const limit = minHold + stage.bounds.takeOver;
      await stage.within(limit, bob.take('report', { wait: 2 * limit }), 'the end of minHold');
      assertBetween(stage.clock.now() - start, minHold - 5, limit + stage.time.tolerance, 'the end of minHold');
    },
  },
  {
    id: '#57i',
    title: 'minHold: a key that a shared lock retains admits readers and no writer',
    needs: [sharedMode, ({ capabilities }) => (capabilities.minHold ? undefined : unclaimed('it has no minHold'))],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const minHold = 100 * stage.lease;
      const grant = await ann.take('report', { mode: 'shared', minHold });
      assert.equal(await ann.release(grant, { keepFor: minHold }), 'released');
      await bob.assertBusy('report');
      const reader = await bob.take('report', { mode: 'shared' });
      await bob.assertBusy('report');
      assert.equal(await bob.release(reader), 'released');
      await ann.assertBusy('report');
      await ann.backend.forceRelease?.('report');
    },
  },
  {
    id: '#57j',
    title: 'forceRelease frees a key that is retained, and answers that somebody had it',
    needs: [
      ({ capabilities }) =>
        capabilities.minHold && capabilities.forceRelease
          ? undefined
          : unclaimed('it does not claim both minHold and forceRelease'),
    ],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const minHold = Math.min(100 * stage.lease, stage.capabilities.maxLease ?? Infinity);
      const grant = await ann.take('report', { minHold });
      assert.equal(await ann.release(grant, { keepFor: minHold }), 'released');
      await bob.assertBusy('report');
      assert.equal(await bob.backend.forceRelease?.('report'), true, 'it was retained');
      assert.equal(await bob.backend.forceRelease?.('report'), false, 'it is free');
      await bob.take('report');
    },
  },
  {
    id: '#57f',
    title: 'forceRelease frees the key, whatever holder has it; or is refused',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      if (!stage.capabilities.forceRelease) {
        await rejectsWith(LockConfigError, ann.locks.admin.forceRelease('order'), 'forceRelease');
        return;
      }
      assert.equal(await bob.locks.admin.forceRelease('order'), false, 'nobody had it');
      const lock = await ann.locks.acquire('order', stage.shortLease);
      const { signal } = lock;
      const waiter = await stage.standInLine(bob, 'order');
      assert.equal(await bob.locks.admin.forceRelease('order'), true);
      const next = await stage.within(stage.bounds.handoff, waiter.lock, 'the waiter');
      await stage.eventually(stage.lease, () => signal.aborted, 'the loss is known');
      assert.equal(await lock.release(), 'lost');
      assert.ok(next.isHeld(), 'the waiter has it');
    },
  },
  {
    id: '#57g',
    title: 'inspect reports what is held, how and for how long; or is refused',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      if (!stage.capabilities.forceRelease) {
        await rejectsWith(LockConfigError, ann.locks.admin.inspect('order'), 'inspect');
        return;
      }
      assert.equal(await bob.locks.admin.inspect('order'), null);
      const lock = await ann.locks.acquire('order', stage.shortLease);
      const info = await bob.locks.admin.inspect('order');
      stage.secrets.overheard(info);
      assert.ok(info, 'a lock that is held is seen');
      const { key, state, mode, holders, fencingToken, expiresIn, instances, since } = info;
      assert.deepEqual(
        { key, state, mode, holders, fencingToken },
        { key: 'order', state: 'held', mode: 'exclusive', holders: 1, fencingToken: lock.fencingToken },
      );
      if (stage.capabilities.lease === 'per-lock')
        assertBetween(expiresIn ?? NaN, 1, stage.lease + stage.bounds.expiry, 'expiresIn');
      assert.equal(instances.length, 1, 'it says which application holds it');
      assert.ok(since === null || since instanceof Date, 'it says since when, or does not know');
      await lock.release();
      assert.equal(await bob.locks.admin.inspect('order'), null);
    },
  },
  {
    id: '#57k',
    title:
      "ordered: an acquire finds a release done that was sent before it, and not answered yet; or release: 'sent' is refused",
    async run(stage) {
      if (!stage.capabilities.ordered) return assertRefused(stage, { release: 'sent' });
      const [ann] = await stage.directs(1);
      let grant = await ann.take('order');
      for (let round = 0; round < 20; round += 1) {
        const released = ann.release(grant);
        grant = await ann.take('order');
        assert.equal(await released, 'released');
      }
    },
  },
  {
    id: '#57h',
    title: 'fencing: every lock carries a token, wide where that is claimed; or none does',
    async run(stage) {
      const { locks } = await stage.process();
      const lock = await locks.acquire('order');
      const { fencing, wideTokens = false } = stage.capabilities;
      assert.equal(typeof lock.fencingToken, fencing ? 'bigint' : 'object');
      assert.equal((lock.fencingToken ?? 0n) >= 2n ** 52n, wideTokens, `token ${lock.fencingToken}`);
    },
  },
];

async function assertRefused(stage: Stage, options: LockOptions): Promise<void> {
  const { locks } = await stage.process();
  await rejectsWith(LockConfigError, locks.acquire('order', options), `options ${JSON.stringify(options)}`);
}
