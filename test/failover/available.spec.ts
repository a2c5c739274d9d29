import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { FailoverProvider } from '../../lib/providers/failover/failover-provider.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { DistantMemoryProvider } from '../contract/memory-backend.js';
import { type FleetProcess, TestFleet } from './fleet-rig.js';

describe('fail-over in mode available', () => {
  let fleet: TestFleet;
  let one: FleetProcess;
  beforeEach(async () => {
    fleet = new TestFleet();
    one = await fleet.start({ mode: 'available', stableFor: 10_000 });
  });
  afterEach(() => fleet.stop());

  const on = (table: 'a' | 'b') => fleet.tables[table].look('lock:k') !== undefined;
  const failed = () => fleet.until(() => one.main.state.active === 'b', 'it is on b');

  it('goes over at once, and brings its waiters along', async () => {
    const other = await fleet.start({ mode: 'available' });
    await other.locks.acquire('k');
    const waiting = one.locks.acquire('k', { wait: 60_000 });
    await fleet.clock.advance(100);
    one.a.cutOff();
    await failed();
    const lock = await fleet.drive(waiting);
    // The other one sees its engine, and holds the same lock there: this is what the mode is.
    expect([on('a'), on('b')]).toEqual([true, true]);
    expect(other.main.state.active).toBe('a');
    await lock.release();
  });

  it('leaves held locks where they are', async () => {
    const lock = await fleet.drive(one.locks.acquire('k', { lease: 60_000 }));
    one.a.cutOff();
    await failed();
    one.a.restore();
    expect(lock.isHeld()).toBe(true);
    expect(await fleet.drive(lock.release())).toBe('released');
    expect(on('a')).toBe(false);
  });

  it('returns when the preferred engine has been stable', async () => {
    one.a.cutOff();
    await failed();
    one.a.restore();
    await fleet.until(() => one.main.state.active === 'a', 'it is back', 60_000);
    expect(one.main.state.history.map(({ reason }) => reason)).toEqual(['failure', 'return']);
  });

  it('leaves an engine that was down already when it was put there by hand', async () => {
    one.b.cutOff();
    await fleet.until(() => one.main.state.engines['b'] === 'down', 'b is down');
    await one.main.switchTo('b');
    expect(one.main.state).toMatchObject({ active: 'a', history: [{ reason: 'manual' }, { reason: 'failure' }] });
  });

  it('gives back a lock that was extended, when its engine answers again', async () => {
    const lock = await fleet.drive(one.locks.acquire('k', { lease: 5_000 }));
    await fleet.drive(lock.extend(600_000));
    one.a.cutOff();
    expect(await fleet.drive(lock.release())).toBe('unconfirmed');
    await fleet.clock.advance(20_000);
    one.a.restore();
    await fleet.until(() => !on('a'), 'it is free', 20_000);
  });

  it('tells an engine that hangs of each lock one at a time', async () => {
    const lock = await fleet.drive(one.locks.acquire('k', { lease: 600_000 }));
    let [underWay, most] = [0, 0];
    const release = one.a.release.bind(one.a);
    const hang = async (): Promise<'unknown'> => {
      most = Math.max(most, (underWay += 1));
      await fleet.passed(20_000);
      underWay -= 1;
      return 'unknown';
    };
    one.a.release = ((holder, manner) =>
      holder.key === 'k' ? hang() : release(holder, manner)) as typeof one.a.release;
    void lock.release();
    await fleet.clock.advance(120_000);
    // The engine of all providers sends it again as well.
    expect(most).toBeLessThanOrEqual(2);
    one.a.release = release;
    await fleet.until(() => !on('a'), 'it is free', 30_000);
  });

  it('parks no longer than was asked for what its engine hears of late', async () => {
    const lock = await fleet.drive(one.locks.acquire('k', { lease: 5_000, minHold: 60_000 }));
    const until = fleet.clock.now() + 60_000;
    one.a.cutOff();
    expect(await fleet.drive(lock.release())).toBe('unconfirmed');
    await fleet.clock.advance(50_000);
    one.a.restore();
    await fleet.until(() => !on('a'), 'it is free', until + 1_000 - fleet.clock.now());
  });

  it('tells in time what one engine has renewed, though another one with older locks is silent', async () => {
    const old = await fleet.drive(one.locks.acquire('old', { lease: 60_000 }));
    one.a.renew = async () => {
      await fleet.passed(15_000);
      return 'unknown';
    };
    await one.main.switchTo('b');
    const lock = await fleet.drive(one.locks.acquire('k', { lease: 6_000 }));
    await fleet.clock.advance(40_000);
    expect([lock.isHeld(), old.isHeld()]).toEqual([true, true]);
    await old.release();
    await lock.release();
  });

  it.each([1_000, 4_000])('waits for an engine that needs %d ms to renew', async (delay) => {
    const renew = one.a.renew.bind(one.a);
    one.a.renew = async (grant, lease) => {
      await fleet.passed(delay);
      return renew(grant, lease);
    };
    const lock = await fleet.drive(one.locks.acquire('k', { lease: 12_000 }));
    await one.main.switchTo('b');
    const other = await fleet.drive(one.locks.acquire('other', { lease: 60_000 }));
    await fleet.clock.advance(60_000);
    expect([lock.isHeld(), other.isHeld()]).toEqual([true, true]);
    await other.release();
    await lock.release();
  });

  it('stays where it was put by hand', async () => {
    await one.main.switchTo('b');
    await fleet.clock.advance(600_000);
    expect(one.main.state.active).toBe('b');
  });

  it('stays where it is when that is said by hand', async () => {
    one.a.cutOff();
    await fleet.until(() => one.main.state.active === 'b', 'it is on b');
    await one.main.switchTo('b');
    one.a.restore();
    await fleet.clock.advance(600_000);
    expect(one.main.state.active).toBe('b');
  });

  it('has no engine to ask when both are down', async () => {
    one.a.cutOff();
    one.b.cutOff();
    await expect(fleet.drive(one.locks.acquire('k', { wait: 20_000 }))).rejects.toThrow(LockUnavailableError);
    one.b.restore();
    const lock = await fleet.drive(one.locks.acquire('k', { wait: 20_000 }));
    expect(one.main.state.active).toBe('b');
    await lock.release();
  });

  it('finds an engine down that hangs, also beside another fail-over of the same process', async () => {
    const hanging = new DistantMemoryProvider(new LockTable(), 'engine');
    const engines = ['q', 'b'];
    const other = new FailoverProvider({ engines, mode: 'available' });
    const process = await fleet.start({ engines, mode: 'available' }, { q: hanging, other });
    hanging.acquire = () => new Promise(() => undefined);
    await fleet.until(
      () => [process.main, other].every(({ state }) => state.engines['q'] === 'down'),
      'both know that it is down',
    );
  });

  it('promises no fencing tokens: processes that decide alone have no order of switches', async () => {
    const lock = await one.locks.acquire('k');
    expect(lock.fencingToken).toBeNull();
    await lock.release();
  });

  it('says what it is at boot', () => {
    expect(one.log).toContain(
      `Lock provider "main": mode 'available' lets two processes hold one lock around a switch: use it to avoid work, not damage.`,
    );
  });
});
