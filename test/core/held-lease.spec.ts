import { HeldLease } from '../../lib/core/hold/held-lease.js';

describe('a lease that is renewed', () => {
  it('counts when it is shorter from the moment it is sent, whatever is answered to earlier renewals', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 1_000 }, 0);
    const renewed = (length: number, now: number) => {
      lease.change(length);
      return lease.beginRenewal(now);
    };
    const long = renewed(30_000, 0);
    const short = renewed(500, 0);
    expect(lease.validUntil).toBeLessThan(500);
    lease.acknowledged(long, 29_000, 0);
    expect(lease.validUntil).toBeLessThan(500);
    lease.acknowledged(short, 490, 0);
    expect(lease.validUntil).toBe(490);
    lease.acknowledged(renewed(30_000, 100), 29_100, 0);
    expect(lease.validUntil).toBe(29_100);
    expect(lease.longest).toBe(30_000);
  });

  it('ignores the answer to a longer one once a shorter one is sent, also if the shorter one ends later than what is known', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 1_000 }, 0);
    lease.change(60_000);
    const long = lease.beginRenewal(0);
    lease.change(30_000);
    lease.beginRenewal(0);
    expect(lease.validUntil).toBe(1_000);
    lease.acknowledged(long, 59_000, 0);
    expect(lease.validUntil).toBe(1_000);
    expect(lease.longest).toBe(60_000);
  });

  it('is renewed after a third of it, and a renewal that is not answered after a tenth of it, at most a second', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 29_698 }, 0);
    expect(lease.renewAt).toBe(9_698);
    const first = lease.beginRenewal(9_698);
    expect(lease.renewAt).toBe(10_698);
    lease.acknowledged(first, 39_396, 0);
    expect(lease.renewAt).toBe(19_396);
    lease.change(1_000);
    lease.beginRenewal(19_396);
    expect(lease.renewAt).toBe(19_496);
  });

  it('is not asked for again immediately by a provider that has gained next to nothing', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 100 }, 0);
    lease.acknowledged(lease.beginRenewal(50), 110, 0);
    expect(lease.renewAt).toBe(1_050);
  });

  it('is not set back by the answer to a renewal that comes behind that to a later one', () => {
    const lease = new HeldLease({ lease: 30_000, validUntil: 29_698 }, 0);
    const [first, second] = [lease.beginRenewal(10_000), lease.beginRenewal(11_000)];
    lease.acknowledged(second, 40_698, 1);
    lease.acknowledged(first, 39_698, 0);
    expect(lease.validUntil).toBe(40_698);
    expect(lease.isVerified(1)).toBe(true);
  });
});
