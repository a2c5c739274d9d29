import { LeaseValidity } from '../../lib/core/toolkit/validity.js';

describe('the validity of a lease that is renewed', () => {
  it('counts a shorter lease from the moment it is sent, whatever is answered to earlier renewals', () => {
    const validity = new LeaseValidity(30_000, 1_000);
    const long = validity.renewing(30_000, 0);
    const short = validity.renewing(500, 0);
    expect(validity.until).toBeLessThan(500);
    expect(validity.acknowledged(long, 29_000)).toBe(false);
    expect(validity.until).toBeLessThan(500);
    expect(validity.acknowledged(short, 490)).toBe(true);
    expect(validity.acknowledged(validity.renewing(30_000, 100), 29_100)).toBe(true);
    expect(validity.until).toBe(29_100);
  });

  it('ignores the answer to a longer lease once a shorter one is sent, also if the shorter one ends later than what is known', () => {
    const validity = new LeaseValidity(30_000, 1_000);
    const long = validity.renewing(60_000, 0);
    validity.renewing(30_000, 0);
    expect(validity.until).toBe(1_000);
    expect(validity.acknowledged(long, 59_000)).toBe(false);
    expect(validity.until).toBe(1_000);
  });
});
