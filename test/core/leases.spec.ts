import fc from 'fast-check';
import type { AcquireRequest, Grant, LockCapabilities, RenewOutcome } from '../../lib/api/lock-provider.js';
import { HeldLease } from '../../lib/core/hold/held-lease.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { validUntil } from '../../lib/core/toolkit/validity.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

const LEASE = 1_000;

/** The fate of one renewal: how long the request and the response travel, in ms. `lost`: the response never arrives. */
interface Journey {
  readonly there: number;
  readonly back: number;
  readonly fate: 'answered' | 'lost' | 'refused';
}

/** A lease behind a network that preserves only the order of requests. */
class DistantLease {
  readonly capabilities: LockCapabilities = {
    ...{ shared: false, fair: false, fencing: false, lease: 'per-lock' },
    ...{ minHold: false, forceRelease: false },
  };
  /** When the lease expires at the backend, by its clock. */
  ends = -Infinity;
  #sent = 0;
  #lastArrival = 0;

  constructor(
    private readonly clock: FakeClock,
    private readonly journeys: readonly Journey[],
  ) {}

  async connect(): Promise<void> {}
  async close(): Promise<void> {}

  async acquire({ lease }: AcquireRequest): Promise<Grant> {
    this.ends = this.clock.now() + lease;
    return { lease, fencingToken: null, validUntil: validUntil(this.clock.now(), lease) };
  }

  renew(_: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const { clock } = this;
    const journey = this.journeys[this.#sent++ % this.journeys.length] ?? { there: 0, back: 0, fate: 'answered' };
    const sentAt = clock.now();
    this.#lastArrival = Math.max(this.#lastArrival, sentAt + journey.there);
    return new Promise((resolve, reject) => {
      clock.setTimer(() => {
        if (journey.fate === 'refused') return reject(new Error('refused'));
        const isOurs = clock.now() < this.ends;
        if (isOurs) this.ends = Math.max(this.ends, clock.now() + lease);
        const outcome: RenewOutcome = isOurs ? { validUntil: validUntil(sentAt, lease) } : 'lost';
        clock.setTimer(() => {
          resolve(journey.fate === 'lost' ? 'unknown' : outcome);
        }, journey.back);
      }, this.#lastArrival - sentAt);
    });
  }

  async release() {
    return 'released' as const;
  }
}

const journey = (there: number, back: number, ...fates: Journey['fate'][]) =>
  fc.record({
    there: fc.integer({ min: 0, max: there }),
    back: fc.integer({ min: 0, max: back }),
    fate: fc.constantFrom(...fates),
  });

async function heldOver(journeys: readonly Journey[]) {
  const clock = new FakeClock();
  const lease = new DistantLease(clock, journeys);
  const locks = new LockManager({
    providers: { main: { createBackend: () => lease } },
    clock,
    shutdownGrace: 0,
  });
  await locks.start();
  return { clock, lease, locks, lock: await locks.acquire('a', { lease: LEASE }) };
}

describe('a lease renewed over an unreliable network', () => {
  const step = fc.oneof(
    fc.record({ do: fc.constant('pass' as const), milliseconds: fc.integer({ min: 1, max: 250 }) }),
    fc.record({ do: fc.constant('block' as const), milliseconds: fc.integer({ min: 1, max: 1_500 }) }),
    fc.record({ do: fc.constant('renew' as const), milliseconds: fc.integer({ min: 100, max: 3_000 }) }),
    fc.record({ do: fc.constant('renew' as const), milliseconds: fc.integer({ min: 100, max: 300 }) }),
  );

  it('is never considered held after the backend expired it, nor again after it was lost', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(journey(300, 900, 'answered', 'answered', 'lost', 'refused'), { minLength: 1, maxLength: 6 }),
        fc.array(step, { minLength: 1, maxLength: 30 }),
        async (journeys, steps) => {
          const { clock, lease, locks, lock } = await heldOver(journeys);
          let wasLost = false;
          const look = () => {
            const isHeld = lock.isHeld();
            if (isHeld) {
              expect(wasLost).toBe(false);
              expect(lease.ends).toBeGreaterThanOrEqual(clock.now() + lock.remaining());
            }
            wasLost ||= !isHeld;
          };
          for (const { do: action, milliseconds } of steps) {
            if (action === 'block') clock.block(milliseconds);
            else if (action === 'renew') lock.extend(milliseconds).catch(() => undefined);
            else await clock.advance(milliseconds);
            look();
          }
          await Promise.all([locks.stop(), clock.advance(60_000)]);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('survives if two of three renewals fail and the third is quick', async () => {
    await fc.assert(
      fc.asyncProperty(
        journey(20, 20, 'lost', 'refused'),
        journey(20, 20, 'lost', 'refused'),
        journey(20, 20, 'answered'),
        async (...journeys) => {
          const { clock, locks, lock } = await heldOver(journeys);
          for (let passed = 0; passed < 8 * LEASE; passed += LEASE / 4) {
            await clock.advance(LEASE / 4);
            expect(lock.isHeld()).toBe(true);
          }
          await Promise.all([locks.stop(), clock.advance(60_000)]);
        },
      ),
      { numRuns: 20 },
    );
  });
});

describe('a renewed lease', () => {
  it('applies a shorter length when the renewal is sent, whatever the response to earlier renewals', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 1_000 }, 0);
    const long = lease.beginRenewal(0, 30_000);
    const short = lease.beginRenewal(0, 500);
    expect(lease.validUntil).toBeLessThan(500);
    lease.acknowledged(long, 29_000, 0);
    expect(lease.validUntil).toBeLessThan(500);
    lease.acknowledged(short, 490, 0);
    expect(lease.validUntil).toBe(490);
    lease.acknowledged(lease.beginRenewal(100, 30_000), 29_100, 0);
    expect(lease.validUntil).toBe(29_100);
    expect(lease.longest).toBe(30_000);
  });

  it('ignores the response to a longer renewal after a shorter one is sent, even if the shorter one ends later than the known end', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 1_000 }, 0);
    const long = lease.beginRenewal(0, 60_000);
    lease.beginRenewal(0, 30_000);
    expect(lease.validUntil).toBe(1_000);
    lease.acknowledged(long, 59_000, 0);
    expect(lease.validUntil).toBe(1_000);
    expect(lease.longest).toBe(60_000);
  });

  it('is renewed after a third of its length, and an unanswered renewal is retried after a tenth, at most one second', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 29_698 }, 0);
    expect(lease.renewAt).toBe(9_698);
    const first = lease.beginRenewal(9_698);
    expect(lease.renewAt).toBe(10_698);
    lease.acknowledged(first, 39_396, 0);
    expect(lease.renewAt).toBe(19_396);
    lease.beginRenewal(19_396, 1_000);
    expect(lease.renewAt).toBe(19_496);
  });

  it('is not renewed again immediately if the provider extended it only marginally', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 100 }, 0);
    lease.acknowledged(lease.beginRenewal(50), 110, 0);
    expect(lease.renewAt).toBe(1_050);
  });

  it("is not set back by an earlier renewal's response that arrives after a later one's", () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 29_698 }, 0);
    const [first, second] = [lease.beginRenewal(10_000), lease.beginRenewal(11_000)];
    lease.acknowledged(second, 40_698, 1);
    lease.acknowledged(first, 39_698, 0);
    expect(lease.validUntil).toBe(40_698);
    expect(lease.isVerified(1)).toBe(true);
  });
});
