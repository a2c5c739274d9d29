import assert from 'node:assert/strict';
import { LockConfigError } from '../../api/errors.js';
import type { LimitShare } from '../../api/lock-mode.js';
import { type CaseDefinition, leaseOfItsOwn, type Need, unclaimed } from '../case-definition.js';
import { type AskOptions, type DirectGrant, granted } from '../direct-caller.js';
import { rejectsWith } from '../expectations.js';

const limits: Need = ({ capabilities }) => (capabilities.limits ? undefined : unclaimed('it has no limits'));
const fairLimits: Need = ({ capabilities }) =>
  capabilities.limits && capabilities.fair ? undefined : unclaimed('it does not claim limits and fairness');
const retained: Need = ({ capabilities }) =>
  capabilities.limits && capabilities.minHold ? undefined : unclaimed('it does not claim limits and minHold');
const operators: Need = ({ capabilities }) =>
  capabilities.limits && capabilities.forceRelease ? undefined : unclaimed('it does not claim limits and forceRelease');

const of = (limit: number, weight = 1): AskOptions & { readonly limited: LimitShare } => ({
  limited: { limit, weight },
});

/** At most `limit` holders at a time. */
export const limitCases: readonly CaseDefinition[] = [
  {
    id: '#58',
    title: 'limits: at most so many hold at a time, and each release admits one more; or a limit is refused',
    async run(stage) {
      if (!stage.capabilities.limits) {
        const { locks } = await stage.process();
        await rejectsWith(LockConfigError, locks.acquire('report', { limit: 3 }), 'a limit');
        return;
      }
      const [ann, bob] = await stage.directs(2);
      const holders = [
        await ann.take('report', of(3)),
        await bob.take('report', of(3)),
        await bob.take('report', of(3)),
      ];
      await ann.assertBusy('report', of(3));
      await bob.assertRenewable(holders[1] as DirectGrant);
      assert.equal(await ann.release(holders[0] as DirectGrant), 'released');
      await bob.take('report', of(3));
      await ann.assertBusy('report', of(3));
    },
  },
  {
    id: '#58a',
    title: 'limits: what the holders take together is never more than the limit',
    needs: [limits],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const heavy = await ann.take('report', of(5, 3));
      await bob.assertBusy('report', of(5, 3));
      await bob.take('report', of(5, 2));
      await ann.assertBusy('report', of(5));
      assert.equal(await ann.release(heavy), 'released');
      await bob.take('report', of(5, 3));
    },
  },
  {
    id: '#58b',
    title: 'limits: exclusive and shared locks wait for all limited holders, and exclude them',
    needs: [limits],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const holders = [await ann.take('report', of(3)), await bob.take('report', of(3))] as const;
      await cid.assertBusy('report');
      assert.equal(await ann.release(holders[0]), 'released');
      await cid.assertBusy('report');
      if (stage.capabilities.shared) await cid.assertBusy('report', { mode: 'shared' });
      assert.equal(await bob.release(holders[1]), 'released');
      const writer = await cid.take('report');
      await ann.assertBusy('report', of(3));
      assert.equal(await cid.release(writer), 'released');
      if (stage.capabilities.shared) {
        const reader = await cid.take('report', { mode: 'shared' });
        await ann.assertBusy('report', of(3));
        assert.equal(await cid.release(reader), 'released');
      }
      await ann.take('report', of(3));
    },
  },
  {
    id: '#58c',
    title: 'limits and fair: nobody overtakes the first waiter, however much it wants; and all that fit enter together',
    needs: [fairLimits],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const holders = [await ann.take('report', of(3)), await ann.take('report', of(3))] as const;
      const heavy = await stage.askInLine(bob, 'report', of(3, 3));
      await cid.assertBusy('report', of(3));
      const behind = [await stage.askInLine(cid, 'report', of(3)), await stage.askInLine(ann, 'report', of(3, 2))];
      await ann.release(holders[0]);
      await cid.assertBusy('report', of(3));
      await ann.release(holders[1]);
      const first = granted(await stage.within(stage.bounds.handoff, heavy.answer, 'the heavy one'));
      await cid.assertBusy('report', of(3));
      await bob.release(first);
      const together = Promise.all(behind.map(({ answer }) => answer));
      for (const answer of await stage.within(stage.bounds.handoff, together, 'those behind')) granted(answer);
    },
  },
  {
    id: '#58d',
    title: 'limits: the smallest limit of the holders and the caller applies',
    needs: [limits],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const old = await ann.take('report', of(3));
      await bob.take('report', of(5));
      await bob.take('report', of(5));
      await bob.assertBusy('report', of(5));
      await ann.release(old);
      await bob.take('report', of(5));
      await bob.take('report', of(5));
      await ann.assertBusy('report', of(3));
      await bob.take('report', of(5));
      await bob.assertBusy('report', of(5));
    },
  },
  {
    id: '#58e',
    title:
      'limits: a grant has no token, because a resource that compares them would refuse all holders but the latest',
    needs: [limits],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      for (const caller of [ann, bob]) assert.equal((await caller.take('report', of(2))).fencingToken, null);
    },
  },
  {
    id: '#58f',
    title: 'limits: a holder whose lease has ended frees what it took and nothing else; it cannot come back',
    needs: [limits, leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const long = await ann.take('report', { ...of(3), lease: 100 * stage.lease });
      const short = await ann.take('report', { ...of(3, 2), lease: stage.lease });
      await bob.assertBusy('report', of(3));
      await stage.leaseEnds();
      await bob.take('report', of(3, 2));
      await bob.assertBusy('report', of(3));
      assert.equal(await ann.renew(short), 'lost');
      assert.equal(await ann.release(short), 'lost');
      await bob.assertBusy('report', of(3));
      await ann.assertRenewable(long);
    },
  },
  {
    id: '#58g',
    title: 'limits: a waiter enters when the lease of a crashed holder ends, without anybody asking',
    needs: [limits, leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      await bob.take('report', { ...of(2), lease: 100 * stage.lease });
      await ann.take('report', { ...of(2), lease: stage.lease });
      const waiter = await stage.askInLine(bob, 'report', of(2));
      granted(await stage.within(stage.lease + stage.bounds.takeOver, waiter.answer, 'the waiter'));
    },
  },
  {
    id: '#58h',
    title: 'limits and minHold: what is retained counts until it is over, and has no holder',
    needs: [retained],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const minHold = 2 * stage.lease;
      const grant = await ann.take('report', { ...of(2), lease: stage.lease, minHold });
      assert.equal(await ann.release(grant, { keepFor: minHold }), 'released');
      await bob.take('report', { ...of(2), lease: 100 * stage.lease });
      await bob.assertBusy('report', of(2));
      await bob.assertBusy('report');
      assert.equal(await ann.renew(grant), 'lost', 'what is retained has no holder');
      assert.equal(await ann.release(grant), 'lost', 'a second release frees nothing');
      await bob.assertBusy('report', of(2));
      const limit = minHold + stage.bounds.takeOver;
      await stage.within(limit, bob.take('report', { ...of(2), wait: 2 * limit }), 'the end of minHold');
    },
  },
  {
    id: '#58i',
    title: 'limits: an ask that is repeated finds its own hold and takes nothing more',
    needs: [limits],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grant = await ann.take('report', of(2));
      const again = await ann.take('report', { ...of(2), request: grant.request });
      assert.equal(again.fencingToken, grant.fencingToken);
      await bob.take('report', of(2));
      await bob.assertBusy('report', of(2));
      assert.equal(await ann.release(again), 'released');
      await bob.take('report', of(2));
    },
  },
  {
    id: '#58j',
    title: 'limits: a waiter that leaves admits those behind it that fit',
    needs: [fairLimits],
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      await ann.take('report', of(2));
      const leaving = new AbortController();
      const heavy = await stage.askInLine(bob, 'report', { ...of(2, 2), signal: leaving.signal });
      const behind = await stage.askInLine(cid, 'report', of(2));
      leaving.abort();
      assert.equal(await heavy.answer, 'busy');
      // The core sends this release whenever an attempt's caller has left.
      await bob.release(heavy.request, { failed: true });
      granted(await stage.within(stage.bounds.handoff, behind.answer, 'the one behind'));
    },
  },
  {
    id: '#58k',
    title: 'limits: inspect reports how many hold, how much, and of which limit; forceRelease takes it from all',
    needs: [operators],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const holders = [await ann.take('report', of(5, 2)), await bob.take('report', of(4))] as const;
      const info = await ann.backend.inspect?.('report');
      assert.ok(info, 'a lock that is held is seen');
      const { state, mode, holders: count, limit, used } = info;
      assert.deepEqual(
        { state, mode, count, limit, used },
        { state: 'held', mode: 'limited', count: 2, limit: 4, used: 3 },
      );
      assert.equal(await bob.backend.forceRelease?.('report'), true);
      assert.equal(await ann.backend.inspect?.('report'), null);
      for (const [index, caller] of [ann, bob].entries()) {
        assert.equal(await caller.renew(holders[index as 0 | 1]), 'lost');
      }
      await ann.take('report');
    },
  },
];
