import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import type {
  AcquireRequest,
  BackendContext,
  Member,
  MemberLockRequest,
  ReleaseOptions,
} from '../../lib/api/lock-provider.js';
import { requestFor } from '../direct-backend.js';
import { startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const LEASE = 10_000;
const VALIDITY = LEASE - (LEASE * 0.01 + 2);
const FREE: ReleaseOptions = { keepFor: 0, failed: false };

/** A composite that delegates all calls to its member. */
class Relay extends ScriptedProvider {
  readonly members = ['inner'];
  member!: Member;

  override createBackend(context: BackendContext): this {
    this.member = context.member('inner');
    this.onAcquire = (request) => this.atMember(request).acquire();
    this.onRenew = ({ request, lease }) => this.atMember(request).renew(lease);
    this.onRelease = (request, options) => this.atMember(request).release(options);
    return super.createBackend(context);
  }

  /** Returns the member's request for this request, always the same. */
  atMember(request: AcquireRequest): MemberLockRequest {
    return (request.state ??= this.member.request(request)) as MemberLockRequest;
  }
}

async function started(fair = true) {
  const inner = ScriptedProvider.obliging({ fair });
  const ids: string[] = [];
  inner.onAcquire = ({ id }, grant) => (ids.push(id), grant());
  const kept: ReleaseOptions[] = [];
  inner.onRelease = (_, options) => (kept.push(options), 'released');
  const relay = new Relay({ fair });
  const rig = await startManager({ providers: { relay, inner }, default: 'relay' });
  return { ...rig, relay, inner, ids, kept };
}

/** Like {@link started}, with a composite's request that the member has granted. */
async function granted(terms: { readonly fair?: boolean; readonly minHold?: number } = {}) {
  const rig = await started(terms.fair);
  const told: unknown[] = [];
  const { minHold = 0 } = terms;
  const request = rig.relay.member.request(
    requestFor('a', 'r1', { lease: LEASE, minHold, lost: (cause) => void told.push(cause) }),
  );
  expect(await request.acquire()).toMatchObject({ lease: LEASE, validUntil: VALIDITY });
  return { ...rig, request, told };
}

describe.each([
  ['is fair', true],
  ['is polled', false],
])('a member whose backend %s, after the deadline of its lease and before any timer fires', (_, fair) => {
  it('sends one release when released, and reports the loss', async () => {
    const { request, told, inner, kept, clock } = await granted({ fair });
    clock.block(VALIDITY);
    expect(await request.release(FREE)).toBe('lost');
    expect(inner.order).toEqual(['acquire a', 'release a']);
    expect([kept, told]).toEqual([[{ keepFor: 0, failed: true }], [undefined]]);
    expect(await request.release(FREE)).toBe('lost');
    expect(await request.renew(LEASE)).toBe('lost');
    await clock.advance(LEASE);
    expect([inner.order.length, told.length, clock.pendingTimers]).toEqual([2, 1, 0]);
  });

  it('sends one release instead of a renewal, and reports the loss', async () => {
    const { request, told, inner, clock } = await granted({ fair });
    clock.block(VALIDITY);
    expect(await request.renew(LEASE)).toBe('lost');
    expect(inner.order).toEqual(['acquire a', 'release a']);
    expect(await request.release(FREE)).toBe('lost');
    await clock.advance(LEASE);
    expect([inner.order.length, told.length, clock.pendingTimers]).toEqual([2, 1, 0]);
  });

  it('does not block a single attempt by this process at the member, which detects the loss', async () => {
    const { locks, request, told, inner, clock } = await granted({ fair });
    clock.block(VALIDITY);
    const trying = watch(locks.tryAcquire('a', { provider: 'inner' }));
    expect([inner.order, told]).toEqual([['acquire a', 'release a', 'acquire a'], [undefined]]);
    await clock.advance(0);
    expect(trying.value?.isHeld()).toBe(true);
    // The new lock belongs to another request, which the release does not end.
    expect(await request.release(FREE)).toBe('lost');
    expect([trying.value?.isHeld(), told.length]).toEqual([true, 1]);
    expect(await trying.value?.release()).toBe('released');
  });

  it('does not block a single attempt after a renewal has shortened the lease either', async () => {
    const { locks, request, told, inner, clock } = await granted({ fair });
    await request.renew(LEASE / 2);
    clock.block((LEASE / 2) * 0.99 - 2);
    const trying = watch(locks.tryAcquire('a', { provider: 'inner' }));
    expect([inner.order, told]).toEqual([['acquire a', 'renew a', 'release a', 'acquire a'], [undefined]]);
    await clock.advance(0);
    expect(await trying.value?.release()).toBe('released');
  });

  it('is valid until then, renewed and released only by the composite', async () => {
    const { request, told, inner, clock } = await granted({ fair });
    await clock.advance(VALIDITY - 1);
    expect(inner.order).toEqual(['acquire a']);
    expect(await request.renew(2 * LEASE)).toMatchObject({ validUntil: clock.now() + 2 * LEASE * 0.99 - 2 });
    clock.block(VALIDITY);
    expect(await request.release(FREE)).toBe('released');
    expect([inner.order, told]).toEqual([['acquire a', 'renew a', 'release a'], []]);
  });

  it("sends one release for a composite's lock that is released then, and the loss is reported only once", async () => {
    const { locks, inner, clock, events } = await started(fair);
    const lock = await locks.acquire('a', { lease: LEASE });
    clock.block(VALIDITY);
    expect(await lock.release()).toBe('lost');
    await clock.advance(LEASE);
    expect(inner.order).toEqual(['acquire a', 'release a']);
    expect(events.filter(({ name }) => name === 'lost')).toMatchObject([
      { event: { key: 'a', provider: 'relay', reason: 'expired' } },
    ]);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('a member that loses a lock with minHold', () => {
  const [MIN_HOLD, PASSED] = [60_000, 1_000];

  it.each<[string, (rig: Awaited<ReturnType<typeof granted>>) => unknown, number]>([
    ['its server', ({ inner, ids }) => inner.revoke(ids[0] ?? ''), PASSED],
    [
      'a renewal',
      ({ inner, request }) => {
        inner.onRenew = () => Promise.resolve('lost');
        return request.renew(LEASE);
      },
      PASSED,
    ],
    [
      'a renewal after the deadline',
      ({ clock, request }) => (clock.block(VALIDITY - PASSED), request.renew(LEASE)),
      VALIDITY,
    ],
    [
      'a release after the deadline',
      ({ clock, request }) => (clock.block(VALIDITY - PASSED), request.release(FREE)),
      VALIDITY,
    ],
    [
      'another caller of this process after the deadline',
      ({ clock, locks }) => (clock.block(VALIDITY - PASSED), locks.tryAcquire('a', { provider: 'inner' })),
      VALIDITY,
    ],
  ])('keeps the key retained if the loss is detected by %s', async (_, lose, passed) => {
    const rig = await granted({ minHold: MIN_HOLD });
    await rig.clock.advance(PASSED);
    await lose(rig);
    expect(rig.kept).toEqual([{ keepFor: expect.closeTo(MIN_HOLD - passed * 0.99) as unknown, failed: true }]);
    expect(rig.told).toEqual([undefined]);
    expect(await rig.request.release(FREE)).toBe('lost');
    expect(rig.kept).toHaveLength(1);
  });

  it('keeps the key retained from its own grant on, even if the composite does not hold the lock yet', async () => {
    const { locks, relay, inner, kept, clock } = await started();
    // The composite waits for something else after its member's grant.
    relay.onAcquire = (request) =>
      relay
        .atMember(request)
        .acquire()
        .then(() => new Promise(() => undefined));
    const waiting = watch(locks.acquire('a', { lease: LEASE, minHold: MIN_HOLD, wait: 60_000 }));
    await clock.advance(0);
    clock.block(VALIDITY);
    const trying = watch(locks.tryAcquire('a', { provider: 'inner' }));
    await clock.advance(0);
    expect([waiting.state, trying.state]).toEqual(['pending', 'fulfilled']);
    expect(inner.order).toEqual(['acquire a', 'release a', 'acquire a']);
    expect(kept).toEqual([{ keepFor: expect.closeTo(MIN_HOLD - VALIDITY * 0.99) as unknown, failed: true }]);
  });

  it('does not retain the key if the composite releases the lock unused', async () => {
    const { locks, relay, kept, clock } = await started();
    const leaving = new AbortController();
    relay.onAcquire = (request) =>
      relay
        .atMember(request)
        .acquire()
        .then(() => new Promise(() => undefined));
    const waiting = watch(locks.acquire('a', { minHold: MIN_HOLD, signal: leaving.signal }));
    await clock.advance(PASSED);
    leaving.abort('enough');
    await clock.advance(0);
    expect(waiting.error).toBe('enough');
    expect(kept).toEqual([{ keepFor: 0, failed: true }]);
  });
});

describe("a composite's request to a member", () => {
  it('is sent separately from a caller of this process that waits at the member', async () => {
    const { locks, inner, relay, ids } = await started();
    inner.onAcquire = undefined;
    const waiting = watch(locks.acquire('a', { provider: 'inner', wait: 60_000 }));
    inner.asks[0]?.input.waits();
    const answer = relay.atMember(requestFor('a', 'r1', { lease: LEASE })).acquire();
    expect(inner.asks.map(({ input }) => input.id)).toEqual([expect.any(String), 'r1']);
    inner.asks[1]?.grant();
    expect(await answer).toMatchObject({ lease: LEASE });
    expect([waiting.state, ids]).toEqual(['pending', []]);
  });

  it('is sent again under another id if the server revoked its grant before the grant arrived', async () => {
    const { locks, inner, clock } = await started();
    inner.onAcquire = undefined;
    const waiting = watch(locks.acquire('a', { wait: 60_000 }));
    const [first] = inner.asks;
    inner.revoke(first?.input.id ?? '');
    first?.grant();
    await clock.advance(1_000);
    expect([waiting.state, inner.order]).toEqual(['pending', ['acquire a', 'release a', 'acquire a']]);
    expect(inner.asks[1]?.input.id).not.toBe(first?.input.id);
    inner.asks[1]?.grant();
    await clock.advance(0);
    expect(waiting.value?.isHeld()).toBe(true);
  });

  it('is released again if it is granted after it was released in flight', async () => {
    const { relay, inner, clock } = await started();
    inner.onAcquire = undefined;
    const request = requestFor('a', 'r1', { lease: LEASE });
    const answer = relay.atMember(request).acquire();
    expect(await relay.atMember(request).release(FREE)).toBe('released');
    inner.asks[0]?.grant();
    expect(await answer).toBe('busy');
    expect(inner.order).toEqual(['acquire a', 'release a', 'release a']);
    await clock.advance(LEASE);
    expect(clock.pendingTimers).toBe(0);
  });

  it('is released when its signal aborts in the queue, even if the composite then forgets it', async () => {
    const { relay, inner, clock } = await started();
    inner.onAcquire = undefined;
    const request = requestFor('a', 'r1', { lease: LEASE });
    const answer = relay.atMember(request).acquire();
    const [ask] = inner.asks;
    ask?.input.waits();
    // As backends do.
    ask?.input.signal.addEventListener('abort', () => {
      ask.answer('busy');
    });
    request.abort();
    expect(await answer).toBe('busy');
    expect(inner.order).toEqual(['acquire a', 'release a']);
    expect(await relay.atMember(request).release(FREE)).toBe('lost');
    expect([inner.order.length, clock.pendingTimers]).toEqual([2, 0]);
  });

  it('is released only once during an outage if nothing was sent', async () => {
    const { relay, inner, clock } = await started();
    inner.onAcquire = () => Promise.reject(new LockUnavailableError('down', { sent: false }));
    inner.onRelease = () => 'unknown';
    const request = requestFor('a', 'r1', { lease: LEASE });
    await expect(relay.atMember(request).acquire()).rejects.toThrow('down');
    expect(await relay.atMember(request).release(FREE)).toBe('unknown');
    await clock.advance(60_000);
    expect(inner.order).toEqual(['acquire a', 'release a']);
  });
});

it('a member passes a refused renewal on to the composite, and does not count as unavailable', async () => {
  const { request, inner, names } = await granted();
  const refusal = new LockConfigError('not allowed');
  inner.onRenew = () => Promise.reject(refusal);
  await expect(request.renew(LEASE)).rejects.toBe(refusal);
  expect(names()).not.toContain('unavailable');
});
