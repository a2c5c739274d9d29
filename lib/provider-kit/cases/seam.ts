import { instanceIdOf } from '../../core/toolkit/instance-ids.js';
import assert from 'node:assert/strict';
import type { Grant, RenewOutcome, SeenGrant } from '../../api/lock-provider.js';
import { cutOff, leaseOfItsOwn, type CaseDefinition } from '../case-definition.js';
import type { DirectGrant } from '../direct-caller.js';
import { assertBetween } from '../expectations.js';

const PATIENT = 30_000;

/** The guarantees of `acquire`, `renew` and `release` that the core relies on. */
export const seamCases: readonly CaseDefinition[] = [
  {
    id: '#S1',
    title: 'acquire is idempotent: asked again, a holder finds its own hold and token, which last no longer by it',
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grant = await ann.take('order', { lease: stage.lease });
      const answeredAt = stage.clock.now();
      await stage.sleep(stage.lease * 0.3);
      const again = await ann.take('order', { request: grant.request });
      assert.equal(again.fencingToken, grant.fencingToken);
      // If the backend reports how much time remains, the second deadline may be closer to the lease's real end.
      const most = stage.capabilities.lease === 'per-lock' ? answeredAt + stage.lease : Infinity;
      assertBetween(again.validUntil, 0, most, 'the deadline after the second ask');
      await bob.assertBusy('order');
      assert.equal(await ann.release(grant), 'released');
      await bob.take('order');
    },
  },
  {
    id: '#S2',
    title: 'asking again does not lengthen a hold in the backend',
    needs: [leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const { request } = await ann.take('order', { lease: stage.lease });
      await stage.sleep(stage.lease * 0.6);
      await ann.take('order', { request });
      await stage.leaseEnds(stage.lease * 0.4);
      await bob.take('order');
    },
  },
  {
    id: '#S3',
    title: 'a release of what was never granted answers lost and harms nobody',
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const stranger = ann.request('order');
      assert.equal(await ann.release(stranger), 'lost', 'of a free key');
      const grant = await bob.take('order');
      assert.equal(await ann.release(stranger), 'lost', 'of a busy key');
      await bob.assertRenewable(grant);
      await ann.assertBusy('order');
    },
  },
  {
    id: '#S4',
    title: 'an attempt that has left and was released never holds again, whichever of the two arrives first',
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      for (let round = 0; round < 10; round += 1) {
        const held = round % 2 ? await ann.take('order') : undefined;
        const leaving = new AbortController();
        const attempt = bob.request('order');
        const answer = bob.ask('order', { request: attempt, wait: 10_000, signal: leaving.signal });
        leaving.abort();
        await bob.release(attempt);
        // The core does this with a grant that arrives after the abort.
        if ((await stage.within(stage.bounds.noAnswer, answer, 'the answer')) !== 'busy') await bob.release(attempt);
        if (held) await ann.release(held);
        await stage.assertFree(cid, 'order');
      }
    },
  },
  {
    id: '#S5',
    title: 'an attempt that was made and released in an outage does not hold after it',
    needs: [cutOff],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      for (const sent of ['before', 'after'] as const) {
        const attempt = ann.request(`order sent ${sent} the cut`);
        const ask = () => ann.ask(attempt.key, { request: attempt }).catch(() => 'unknown');
        const early = sent === 'before' ? ask() : undefined;
        await stage.cutOff(ann);
        await stage.within(stage.bounds.noAnswer, early ?? ask(), 'the answer');
        await ann.release(attempt);
        await stage.restore(ann);
        const isReleased = async () => (await ann.release(attempt)) !== 'unknown';
        await stage.eventually(stage.bounds.recovery, isReleased, 'recovery');
        await stage.assertFree(bob, attempt.key);
        await stage.sleep(stage.time.pause);
        await stage.assertFree(bob, attempt.key);
      }
    },
  },
  {
    id: '#S6',
    title: 'a renewal brings nothing back: not what was released, not what somebody else has now',
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grant = await ann.take('order');
      await ann.release(grant);
      assert.equal(await ann.renew(grant), 'lost');
      const next = await bob.take('order');
      assert.equal(await ann.renew(grant), 'lost');
      await bob.assertRenewable(next);
    },
  },
  {
    id: '#S7',
    title: 'a renewal brings nothing back whose lease is over',
    needs: [leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grant = await ann.take('order', { lease: stage.lease });
      await stage.leaseEnds();
      assert.equal(await ann.renew(grant), 'lost');
      await bob.take('order');
    },
  },
  {
    id: '#S8',
    title: 'a renewal renews to the lease it names, counted from its sending',
    needs: [leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grant = await ann.take('order', { lease: stage.lease });
      const sentAt = stage.clock.now();
      const outcome = await ann.renew(grant, 3 * stage.lease);
      assert.ok(typeof outcome === 'object', 'renewed');
      const answeredAt = stage.clock.now();
      assertBetween(
        outcome.validUntil,
        sentAt + 2.8 * stage.lease,
        answeredAt + 3 * stage.lease - 2,
        'the new deadline, less a margin',
      );
      await stage.sleep(2 * stage.lease);
      await bob.assertBusy('order');
      await stage.leaseEnds();
      await bob.take('order');
    },
  },
  {
    id: '#S9',
    title: 'of many renewals in one tick, each is answered for its own lock',
    async run(stage) {
      const ann = await stage.direct();
      // If each lock may cost a connection, hold only a few, but send the same number of renewals.
      const heldCount = stage.capabilities.lease === 'per-lock' ? 150 : 4;
      const grants: DirectGrant[] = [];
      const isHeld = (index: number) => index % Math.floor(300 / heldCount) === 0;
      for (let index = 0; index < 300; index += 1) {
        grants.push(
          isHeld(index)
            ? await ann.take(`key:${index}`)
            : {
                request: ann.request(`key:${index}`),
                fencingToken: null,
                validUntil: stage.clock.now() + 10_000,
                lease: 30_000,
              },
        );
      }
      const outcomes = await Promise.all(grants.map((grant) => ann.renew(grant, 30_000)));
      assert.deepEqual(
        outcomes.map(nameOf),
        grants.map((_, index) => (isHeld(index) ? 'renewed' : 'lost')),
      );
      for (const grant of grants.filter((_, index) => isHeld(index))) await ann.release(grant);
    },
  },
  {
    id: '#S10',
    title: 'an abort is answered immediately with busy, and leaves nothing in the queue',
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const held = await ann.take('order');
      const leaving = new AbortController();
      const waiter = await stage.askInLine(bob, 'order', { signal: leaving.signal });
      const took = await stage.duration(async () => {
        leaving.abort();
        assert.equal(await waiter.answer, 'busy');
      });
      assertBetween(took, 0, stage.time.tolerance, 'leaving');
      await ann.release(held);
      await stage.assertFree(cid, 'order');
    },
  },
  {
    id: '#S11',
    title: 'an attempt with a wait of 0 is not queued, and leaves nothing behind',
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      const held = await ann.take('order');
      const request = bob.request('order');
      assert.equal(await bob.ask('order', { request }), 'busy');
      assert.equal(request.isQueued, false);
      await ann.release(held);
      await cid.take('order');
    },
  },
  {
    id: '#S12',
    title: 'one provider serves several applications, at the same time and one after the other',
    async run(stage) {
      const provider = await stage.harness.create();
      const [ann, bob] = [stage.embody(provider), stage.embody(provider)];
      await Promise.all([ann.locks.start(), bob.locks.start()]);
      const held = await ann.locks.acquire('order');
      assert.equal(await bob.locks.tryAcquire('order'), null, 'they exclude each other');
      await (await bob.locks.acquire('another')).release();
      await ann.locks.stop();
      const cid = stage.embody(provider);
      await cid.locks.start();
      await (await cid.locks.acquire('order', { wait: PATIENT })).release();
      await held.release();
      await (await bob.locks.acquire('another')).release();
    },
  },
  {
    id: '#S16',
    title: 'a request that names the one before it takes effect only if that is granted, where the backend offers it',
    async run(stage) {
      const [ann, bob, cid] = await stage.directs(3);
      // On a backend with several servers, only some keys can be requested together.
      const numbered = Array.from({ length: 200 }, (_, index) => `k${index}`);
      const keys = numbered.filter((key) => key === 'k0' || bob.backend.chains?.('k0', key)).slice(0, 4);
      if (keys.length < 4) {
        assert.equal(bob.backend.chains?.('k0', 'k0') ?? false, false, 'a backend that offers it finds such keys');
        return;
      }
      const free = keys.map((key) => bob.request(key));
      const granted = await Promise.all(bob.askInChain(free));
      assert.deepEqual(
        granted.map(kindOf),
        keys.map(() => 'grant'),
      );
      for (const request of free) await bob.release(request);
      for (const [place, busy] of keys.entries()) {
        const held = await ann.take(busy);
        for (const wait of [0, PATIENT]) {
          const requests = keys.map((key) => bob.request(key));
          const leaving = new AbortController();
          for (const request of requests) request.signal = leaving.signal;
          const answers = bob.askInChain(requests, wait);
          const behind = await Promise.all(answers.slice(place + 1));
          assert.deepEqual(
            behind.map(kindOf),
            keys.slice(place + 1).map(() => 'not-asked'),
            `behind "${busy}"`,
          );
          for (const request of requests.slice(place + 1)) {
            assert.equal(request.isQueued, false, 'what was not asked for is not queued');
            await stage.assertFree(cid, request.key);
          }
          const before = await Promise.all(answers.slice(0, place));
          assert.deepEqual(
            before.map(kindOf),
            keys.slice(0, place).map(() => 'grant'),
            `before "${busy}"`,
          );
          leaving.abort();
          assert.equal(await answers[place], 'busy');
          for (const request of requests.slice(0, place + 1)) await bob.release(request);
        }
        await ann.release(held);
        for (const key of keys) await stage.assertFree(cid, key);
      }
    },
  },
  {
    id: '#S17',
    title: 'a holder that is named is the one that keeps the request out, seen after it came',
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      if (!bob.backend.heldBy) return;
      const before = stage.clock.now();
      const grant = await ann.take('order');
      const refused = bob.request('order');
      await bob.assertBusy('order', { request: refused });
      const leaving = new AbortController();
      const waiting = await stage.askInLine(bob, 'order', { signal: leaving.signal });
      for (const request of [refused, waiting.request]) {
        const holding = bob.backend.heldBy(request);
        // The reported holder may be unknown, but not wrong.
        if (holding === null) continue;
        assert.equal(holding.holders, 1, 'one holder keeps it out');
        const { instance, since, seenAt } = holding;
        const names = [null, ann.instance.id, ann.instance.name];
        assert.ok(names.includes(instance), `instance ${String(instance)} does not hold the key`);
        const now = stage.clock.now();
        assertBetween(seenAt, before, now, 'when it was seen');
        const { tolerance } = stage.time;
        // By two clocks.
        if (since !== null) assertBetween(since, before - tolerance, now + tolerance, 'since when it is held');
      }
      leaving.abort();
      assert.equal(await waiting.answer, 'busy');
      await bob.release(waiting.request);
      await ann.release(grant);
    },
  },
  {
    id: '#S18',
    title: 'a label is that of the present holder, or there is none, where the backend has labels',
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      if (!ann.backend.label || !bob.backend.labelOf) return;
      const isShown = (text: string) => async () => (await bob.backend.labelOf?.('order')) === text;
      const { lease } = stage;
      assert.equal(await bob.backend.labelOf('order'), null, 'of a free key');
      const first = await ann.take('order', { lease });
      assert.equal(await bob.backend.labelOf('order'), null, 'before it is written');
      ann.backend.label(first.request, 'of the first', lease);
      await stage.eventually(stage.bounds.handoff, isShown('of the first'), 'the label is shown');
      await ann.release(first);
      assert.equal(await bob.backend.labelOf('order'), null, 'after the release');
      const second = await bob.take('order', { lease });
      assert.equal(await bob.backend.labelOf('order'), null, 'under the next holder');
      bob.backend.label?.(second.request, 'of the second', lease);
      await stage.eventually(stage.bounds.handoff, isShown('of the second'), 'the next label is shown');
      // By the time this label arrives, the lock has another holder.
      ann.backend.label(first.request, 'of the first', lease);
      await stage.sleep(stage.time.pause);
      assert.notEqual(await bob.backend.labelOf('order'), 'of the first', 'a label that comes late');
      await bob.assertRenewable(second);
      if (stage.capabilities.lease === 'per-lock') await stage.leaseEnds();
      else await bob.release(second);
      assert.equal(await bob.backend.labelOf('order'), null, 'of a lock that has ended');
    },
  },
  {
    id: '#S19',
    title:
      'the record of a process is seen by all, until it is replaced or removed, or ends by itself; and the holders of a key are',
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const boards = [ann.backend.waits, bob.backend.waits];
      const [own, other] = boards;
      if (!own || !other) return;
      const seen = async (key: string) => {
        const looks = await Promise.all([own.holders(key, 64), other.holders(key, 64)]);
        assert.deepEqual(sorted(looks[1]), sorted(looks[0]), 'all see the same');
        return sorted(looks[0]);
      };
      const began = await own.serverTime();
      assert.deepEqual(await seen('order'), [], 'a free key has no holder');
      const grant = await ann.take('order');
      const { id } = grant.request;
      assert.deepEqual(await seen('order'), [{ id, mode: 'exclusive' }]);
      const instance = instanceIdOf(id);
      for (const text of ['one', '[1,"}\\u0000 \u00e9\u{1f512}"]', null, 'two']) {
        await own.publish(text, PATIENT);
        assert.deepEqual(await Promise.all([own.read(instance), other.read(instance)]), [text, text]);
      }
      const leaving = new AbortController();
      const waiting = await stage.askInLine(bob, 'order', { signal: leaving.signal });
      assert.deepEqual(await seen('order'), [{ id, mode: 'exclusive' }], 'waiters change nothing');
      leaving.abort();
      await waiting.answer;
      await bob.release(waiting.request);
      await ann.release(grant);
      assert.deepEqual(await seen('order'), [], 'a key that was released has no holder');
      if (stage.capabilities.shared) {
        const readers = [await ann.take('readers', { mode: 'shared' }), await bob.take('readers', { mode: 'shared' })];
        const expected = readers.map(({ request }) => ({ id: request.id, mode: 'shared' as const }));
        assert.deepEqual(await seen('readers'), sorted(expected));
        assert.equal((await own.holders('readers', 1)).length, 1, 'no more holders than wanted');
      }
      if (stage.capabilities.limits) {
        const terms = { limited: { limit: 3, weight: 1 } };
        for (const caller of [ann, bob]) {
          await caller.take('pool', terms);
          assert.deepEqual(await seen('pool'), [], 'limited holders are not seen');
        }
      }
      if (stage.capabilities.minHold) {
        const kept = await ann.take('kept', { minHold: PATIENT });
        assert.deepEqual(await seen('kept'), [{ id: kept.request.id, mode: 'exclusive' }]);
        await ann.backend.release(kept.request, { keepFor: PATIENT, failed: false });
        assert.deepEqual(await seen('kept'), [], 'a retained key has no holder');
      }
      const last = await bob.take('last');
      await other.publish('short', stage.lease);
      const isOver = async () => (await own.read(instanceIdOf(last.request.id))) === null;
      await stage.eventually(stage.lease + stage.bounds.expiry + stage.time.pause, isOver, 'a record ends by itself');
      assertBetween(await other.serverTime(), began, Infinity, 'the time of the server');
    },
  },
];

function sorted(seen: readonly SeenGrant[] = []): readonly SeenGrant[] {
  return seen.toSorted((one, other) => (one.id < other.id ? -1 : 1));
}

function kindOf(answer: Grant | 'busy' | 'not-asked'): string {
  return typeof answer === 'object' ? 'grant' : answer;
}

function nameOf(outcome: RenewOutcome): string {
  return typeof outcome === 'object' ? 'renewed' : outcome;
}
