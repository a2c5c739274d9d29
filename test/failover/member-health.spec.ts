import type { ProviderState } from '../../lib/api/failover-state.js';
import { MemberHealth } from '../../lib/providers/failover/member-health.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

describe('the health of a member', () => {
  const terms = { failingFor: 1_000, refusingFor: 6_000, stableFor: 30_000 };
  const judge = () => {
    const clock = new FakeClock();
    const states: ProviderState[] = [];
    return { clock, states, health: new MemberHealth(terms, clock, (state) => states.push(state)) };
  };
  const fail = async ({ health, clock }: ReturnType<typeof judge>, times: number) => {
    for (let time = 0; time < times; time += 1) {
      health.failed();
      await clock.advance(500);
    }
  };

  it('is down after as many failures in a row as it takes', async () => {
    const at = judge();
    await fail(at, 2);
    expect(at.health.state).toBe('up');
    await fail(at, 1);
    expect(at.health.state).toBe('down');
  });

  it('is not down when it has answered between the failures', async () => {
    const at = judge();
    await fail(at, 2);
    at.health.succeeded();
    await fail(at, 2);
    expect(at.states).toEqual([]);
  });

  it('is not down by a broken connection that fails all that was under way on it', async () => {
    const at = judge();
    for (let call = 0; call < 64; call += 1) at.health.failed();
    expect(at.health.state).toBe('up');
    await at.clock.advance(terms.failingFor);
    at.health.failed();
    expect(at.health.state).toBe('down');
  });

  it('is down when it has granted nothing for long enough, though it renews', async () => {
    const at = judge();
    for (let second = 0; second < 6; second += 1) {
      at.health.failed();
      at.health.refused();
      at.health.renewed();
      await at.clock.advance(1_000);
      expect(at.states).toEqual([]);
    }
    at.health.refused();
    expect(at.states).toEqual(['down']);
    at.health.renewed();
    expect(at.states).toEqual(['down']);
    at.health.succeeded();
    expect(at.states).toEqual(['down', 'recovering']);
  });

  it('is not down by refusals between which it has granted', async () => {
    const at = judge();
    for (let second = 0; second < 20; second += 1) {
      at.health.refused();
      if (second % 5 === 0) at.health.succeeded();
      await at.clock.advance(1_000);
    }
    expect(at.states).toEqual([]);
  });

  it('is well again only after it has answered for long enough', async () => {
    const at = judge();
    await fail(at, 3);
    at.health.succeeded();
    await at.clock.advance(terms.stableFor - 1);
    at.health.succeeded();
    expect(at.health.state).toBe('recovering');
    await at.clock.advance(1);
    at.health.succeeded();
    expect(at.states).toEqual(['down', 'recovering', 'up']);
  });

  it('is down again at the first failure while it recovers', async () => {
    const at = judge();
    await fail(at, 3);
    at.health.succeeded();
    at.health.failed();
    expect(at.states).toEqual(['down', 'recovering', 'down']);
  });
});
