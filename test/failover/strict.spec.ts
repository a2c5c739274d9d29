import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import type { Lock } from '../../lib/api/lock.js';
import { LockTimeoutError, LockUnavailableError } from '../../lib/api/errors.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import type { FailoverProviderOptions } from '../../lib/providers/failover/failover-options.js';
import { DistantMemoryProvider } from '../contract/memory-backend.js';
import { type FleetProcess, SWITCH, TestFleet, WINDOW } from './fleet-rig.js';

const CONFIRMED = WINDOW / 5 + WINDOW / 20;

describe('fail-over in mode strict', () => {
  let fleet: TestFleet;
  beforeEach(() => {
    fleet = new TestFleet();
  });
  afterEach(() => fleet.stop());

  const start = async (count: number, options: Partial<FailoverProviderOptions> = {}): Promise<FleetProcess[]> => {
    const all = Array.from({ length: count }, () => fleet.add(options));
    await fleet.drive(Promise.all(all.map(({ locks }) => locks.start())));
    return all;
  };
  const take = async ({ locks }: FleetProcess, key = 'k'): Promise<Lock> => {
    const lock = await fleet.drive(locks.tryAcquire(key));
    if (!lock) throw new Error(`"${key}" is busy.`);
    return lock;
  };
  /** Why a lock cannot be had. */
  const refusal = async ({ locks }: FleetProcess): Promise<string> => {
    const error: unknown = await fleet.drive(locks.tryAcquire('other').catch((refused: unknown) => refused));
    if (!(error instanceof LockUnavailableError)) throw new Error(`Expected it to be unavailable: ${String(error)}`);
    // No engine was asked, so there is nothing to clean up.
    expect(error.cause).toMatchObject({ sent: false });
    return String(error.cause);
  };
  const active = ({ main }: FleetProcess) => main.state.active;
  const switchedTo = (engine: string, ...processes: FleetProcess[]) =>
    fleet.until(() => processes.every((process) => active(process) === engine), `they are on ${engine}`);
  const on = (table: 'a' | 'b', key = 'k') => fleet.tables[table].look(`lock:${key}`) !== undefined;
  const advance = (milliseconds: number) => fleet.clock.advance(milliseconds);

  it('locks on the preferred engine, among all processes', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    expect([on('a'), on('b')]).toEqual([true, false]);
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    expect(await lock.release()).toBe('released');
    expect(await (await take(two)).release()).toBe('released');
  });

  it('keeps the lock that readers of one process share until the last of them has left', async () => {
    const table = new LockTable();
    const queued = () => fleet.start({ engines: ['q', 'b'] }, { q: new DistantMemoryProvider(table, 'engine') });
    const [one, two] = [await queued(), await queued()];
    const readers = await fleet.drive(
      Promise.all([1, 2].map(() => one.locks.acquire('k', { mode: 'shared', wait: 1_000 }))),
    );
    await readers[0]?.release();
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    await readers[1]?.release();
    await (await take(two)).release();
  });

  it('keeps a lock for as long as its task takes', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    const lock = await take(one);
    await advance(120_000);
    expect(lock.isHeld()).toBe(true);
    expect(on('a')).toBe(true);
    await lock.release();
    expect(on('a')).toBe(false);
  });

  describe('when the engine fails for most', () => {
    it('goes over to the next, and nothing is granted before the last locks of the old one are over', async () => {
      const [one, two, three] = (await start(3)) as [FleetProcess, FleetProcess, FleetProcess];
      const lock = await take(one);
      one.a.cutOff();
      two.a.cutOff();
      const waiting = three.locks.acquire('k', { wait: 60_000 });
      await switchedTo('b', one, two, three);
      const overlaps: boolean[] = [];
      const next = await fleet.drive(
        waiting.then((granted) => {
          overlaps.push(lock.isHeld());
          return granted;
        }),
      );
      expect(overlaps).toEqual([false]);
      expect(on('b')).toBe(true);
      await next.release();
    });

    it('lets a short task finish, and ends a long one at its deadline', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const [short, long] = [await take(one, 'short'), await take(one, 'long')];
      one.a.cutOff();
      await switchedTo('b', one);
      expect([short.isHeld(), long.isHeld()]).toEqual([true, true]);
      // The engine is gone: whether it was released there is not known.
      expect(await fleet.drive(short.release())).toBe('unconfirmed');
      await advance(WINDOW);
      expect(long.isHeld()).toBe(false);
      expect(long.signal.aborted).toBe(true);
    });

    it('says that it switched, once in each process', async () => {
      const processes = await start(2);
      const told = processes.map(({ locks }) => {
        const events: unknown[] = [];
        locks.events.on('switched', (event) => events.push(event));
        return events;
      });
      for (const { a } of processes) a.cutOff();
      await switchedTo('b', ...processes);
      expect(told).toEqual([
        [{ provider: 'main', engine: 'b', epoch: 2, reason: 'failure' }],
        [{ provider: 'main', engine: 'b', epoch: 2, reason: 'failure' }],
      ]);
      expect(processes[0]?.main.state.history).toMatchObject([{ epoch: 2, from: 'a', to: 'b', reason: 'failure' }]);
      expect(processes[0]?.log).toContain('Lock provider "main": its engine "a" does not answer.');
    });

    it('sends waiters to the new engine', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      await take(one);
      const waiting = two.locks.acquire('k', { wait: 60_000 });
      await advance(100);
      expect(fleet.tables.a.look('lock:k')?.waiters).toBe(1);
      // By hand, so that the old engine lives and shows what is left on it.
      await fleet.drive(one.main.switchTo('b'));
      await switchedTo('b', two);
      expect(fleet.tables.a.look('lock:k')?.waiters).toBe(0);
      const lock = await fleet.drive(waiting);
      expect(on('b')).toBe(true);
      await lock.release();
    });

    it('tells the engine what was released meanwhile, and keeps nothing', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.a.cutOff();
      expect(await fleet.drive(lock.release())).toBe('unconfirmed');
      await advance(WINDOW + 1_000);
      expect(on('a')).toBe(true);
      one.a.restore();
      await advance(0);
      expect(on('a')).toBe(false);
      expect(fleet.kept).toBe(0);
    });

    it('keeps nothing for an engine that never comes back, either', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.a.cutOff();
      await fleet.drive(lock.release());
      expect(fleet.kept).toBeGreaterThan(0);
      await advance(40_000);
      expect(fleet.kept).toBe(0);
    });

    it('gives ever larger tokens, whatever those of the engines are', async () => {
      const [one] = (await start(1, { minStay: 0, stableFor: 0 })) as [FleetProcess];
      const tokens: bigint[] = [];
      for (const engine of ['a', 'b', 'a', 'b']) {
        await fleet.drive(one.main.switchTo(engine));
        const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
        tokens.push(lock.fencingToken ?? 0n);
        await fleet.drive(lock.release());
        // Those of the engines go back each time.
        fleet.clock.stepWallTime(-3_600_000);
      }
      expect(tokens).toEqual([...tokens].sort((x, y) => (x < y ? -1 : 1)));
      expect(new Set(tokens).size).toBe(4);
    });
  });

  it('fails closed in a process that alone cannot reach the engine, and does not switch', async () => {
    const [one, two, three] = (await start(3)) as [FleetProcess, FleetProcess, FleetProcess];
    one.a.cutOff();
    await expect(fleet.drive(one.locks.acquire('k', { wait: 2_000 }))).rejects.toThrow(LockUnavailableError);
    await advance(60_000);
    expect([one, two, three].map(active)).toEqual(['a', 'a', 'a']);
    expect(one.main.state.engines).toEqual({ a: 'down', b: 'up' });
    await (await take(two)).release();
  });

  it('counts who is gone no more', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    await fleet.drive(two.locks.stop());
    one.a.cutOff();
    // One of two is not most; when the other has not been heard of for two windows, one of one is.
    await fleet.until(() => active(one) === 'b', 'it is alone', 3 * WINDOW + SWITCH);
  });

  describe('when the record fails', () => {
    it('grants nothing, and locks end when the last confirmation is over', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.record.cutOff();
      await advance(WINDOW);
      expect(lock.isHeld()).toBe(false);
      expect(await refusal(one)).toContain('"main" cannot confirm the record on which its processes agree');
      expect(on('a', 'other')).toBe(false);
      one.record.restore();
      await advance(2 * CONFIRMED);
      await (await take(one)).release();
    });

    it('survives one answer that is lost', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.record.onWrite = (execute) => {
        one.record.onWrite = undefined;
        execute();
        return new Promise(() => {});
      };
      await advance(2 * WINDOW);
      expect(lock.isHeld()).toBe(true);
      await lock.release();
    });

    it('waits for its first answer, which may have to make a connection and a table, for a whole window', async () => {
      const slow = fleet.add();
      const answers = [0.9 * WINDOW, 2 * WINDOW];
      slow.record.onWrite = async (execute) => {
        const [delay = 0] = answers.splice(0, 1);
        await fleet.passed(delay);
        return execute();
      };
      await fleet.drive(slow.locks.start());
      expect(answers).toEqual([]);
      await advance(CONFIRMED);
      await (await take(slow)).release();
    });

    it('follows its own switch when the answer to it was lost', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      let lost = 0;
      one.record.onWrite = (execute) => {
        const found = execute();
        if (!found?.includes('"active":"b"') || lost > 0) return Promise.resolve(found);
        lost += 1;
        return new Promise(() => {});
      };
      await expect(fleet.drive(one.main.switchTo('b'))).rejects.toThrow(LockUnavailableError);
      // Until it has asked again it grants nothing: it cannot know.
      await expect(fleet.drive(one.locks.tryAcquire('k'))).rejects.toThrow(LockUnavailableError);
      await switchedTo('b', one, two);
      await advance(2 * WINDOW);
      await (await take(one)).release();
      expect(lost).toBe(1);
    });

    it.each([
      ['deleted', () => fleet.store.values.clear()],
      [
        'restored from the past',
        (past: ReadonlyMap<string, string>) => past.forEach((text, name) => fleet.store.values.set(name, text)),
      ],
      ['damaged', () => fleet.store.values.set('main', '{}')],
    ])('fails closed and says so when it was %s', async (_, damage) => {
      const [one] = (await start(1)) as [FleetProcess];
      const past = new Map(fleet.store.values);
      await fleet.drive(one.main.switchTo('b'));
      await advance(2 * WINDOW);
      const lock = await take(one);
      damage(past);
      await advance(WINDOW);
      expect(lock.isHeld()).toBe(false);
      expect(await refusal(one)).toContain('cannot confirm the record');
      expect(
        one.log.filter((line) => line.includes('found its record deleted, damaged or restored from the past')),
      ).toHaveLength(1);
    });

    it('grants nothing more in a process whose record was deleted, whatever others make of a new one', async () => {
      const [old] = (await start(1)) as [FleetProcess];
      await fleet.drive(old.main.switchTo('b'));
      await advance(2 * WINDOW);
      fleet.store.values.clear();
      await advance(WINDOW);
      // A new history comes to the same number by a switch of its own.
      const late = await fleet.start();
      await fleet.drive(late.main.switchTo('b'));
      await advance(3 * WINDOW);
      expect(late.main.state.epoch).toBe(old.main.state.epoch);
      const lock = await take(late);
      expect(await refusal(old)).toContain('cannot confirm the record');
      await lock.release();
    });

    it('gives nobody a lock that is still held by a record that was deleted', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      await advance(2 * WINDOW);
      const lock = await take(one);
      fleet.store.values.clear();
      const late = fleet.add();
      const next = late.locks.start().then(() => late.locks.acquire('k', { wait: 60_000 }));
      await fleet.drive(
        next.then(() => {
          expect(lock.isHeld()).toBe(false);
        }),
      );
      await (await next).release();
    });
  });

  describe('at a switch', () => {
    it('waits for the last locks of before, and says how long', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      expect(await refusal(one)).toMatch(/has gone over to "b" and waits \d+ ms/);
      await advance(1.01 * WINDOW + 2);
      await (await take(one)).release();
    });

    it('spares those who come after it the wait', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      await advance(2 * WINDOW);
      const before = fleet.clock.now();
      const late = await fleet.start();
      await (await take(late)).release();
      expect(fleet.clock.now() - before).toBeLessThan(WINDOW / 2);
    });

    it('waits for the longest window of all, as in a deployment that shortens it', async () => {
      const [slow] = (await start(1, { window: 4 * WINDOW })) as [FleetProcess];
      const quick = await fleet.start({ window: WINDOW / 2 });
      const lock = await take(slow);
      slow.record.cutOff();
      await fleet.drive(quick.main.switchTo('b'));
      const next = await fleet.drive(quick.locks.acquire('k', { wait: 60_000 }));
      expect(lock.isHeld()).toBe(false);
      await next.release();
    });

    it('withdraws also in a process that does not have the new engine, and refuses there', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const other = await fleet.start({ engines: ['a', 'c'] }, { c: fleet.newEngine() });
      await fleet.drive(one.main.switchTo('b'));
      await advance(3 * WINDOW);
      expect(await refusal(other)).toContain(
        '"main" is on "b" in other processes, which is not among the engines of this one',
      );
    });

    it('made by hand stays', async () => {
      const [one] = (await start(1, { minStay: 0, stableFor: 0 })) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      await advance(600_000);
      expect(one.main.state).toMatchObject({ active: 'b', epoch: 2, engines: { a: 'up', b: 'up' } });
      await fleet.drive(one.main.switchTo('b'));
      expect(one.main.state.epoch).toBe(2);
    });

    it('by hand to where it is already stays as well', async () => {
      const [one] = (await start(1, { minStay: 0, stableFor: 0 })) as [FleetProcess];
      one.a.cutOff();
      await switchedTo('b', one);
      await fleet.drive(one.main.switchTo('b'));
      one.a.restore();
      await advance(600_000);
      expect(one.main.state).toMatchObject({ active: 'b', epoch: 2, engines: { a: 'up', b: 'up' } });
    });

    it('is refused to an engine that is none', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await expect(one.main.switchTo('c')).rejects.toThrow('There is no engine "c": the engines are a, b.');
    });
  });

  it('returns to the preferred engine when it has been stable, and each time later', async () => {
    const [one] = (await start(1, { stableFor: 10_000, minStay: 60_000 })) as [FleetProcess];
    const away = async () => {
      one.a.cutOff();
      await switchedTo('b', one);
      const since = fleet.clock.now();
      one.a.restore();
      await fleet.until(() => active(one) === 'a', 'it is back', 600_000);
      return fleet.clock.now() - since;
    };
    const stays = [await away(), await away(), await away()];
    expect(stays.map((stay) => Math.floor(stay / 10_000))).toEqual([6, 12, 24]);
  });

  it('does not return while anybody misses the preferred engine', async () => {
    const [one, two, three] = (await start(3, { stableFor: 0, minStay: 0 })) as [
      FleetProcess,
      FleetProcess,
      FleetProcess,
    ];
    one.a.cutOff();
    two.a.cutOff();
    await switchedTo('b', one, two, three);
    one.a.restore();
    await advance(60_000);
    expect(active(three)).toBe('b');
    two.a.restore();
    await switchedTo('a', one, two, three);
  });

  it('grants under another id what it gave back unconfirmed, so that a release that was lost frees nobody', async () => {
    const overlaps: Record<number, number> = {};
    for (let offset = 0; offset < 2_000; offset += 500) {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      const key = `after ${offset}`;
      const first = await take(two, key);
      const waiting = one.locks.acquire(key, { wait: 120_000 });
      await advance(1_000);
      one.record.cutOff();
      await advance(WINDOW + 1_000 + offset);
      const release = one.a.release.bind(one.a);
      let isLost = false;
      one.a.release = (holder, manner) => {
        if (holder.key !== key || isLost) return release(holder, manner);
        isLost = true;
        return 'unknown';
      };
      // The grant meets a confirmation that has lapsed, is given back, and the engine does not hear of it.
      one.record.restore();
      await first.release();
      const lock = await fleet.drive(waiting);
      expect(isLost).toBe(true);
      let overlap = 0;
      let other: Lock | null = null;
      for (let elapsed = 0; elapsed < 2 * SWITCH; elapsed += 100) {
        other ??= await fleet.drive(two.locks.tryAcquire(key));
        if (other?.isHeld() && lock.isHeld()) overlap += 100;
        await advance(100);
      }
      if (overlap > 0) overlaps[offset] = overlap;
      await lock.release();
      await fleet.until(() => fleet.kept === 0, 'nothing is left');
      await fleet.drive(Promise.all([one.locks.stop(), two.locks.stop()]));
    }
    expect(overlaps).toEqual({});
  });

  it('comes back to an engine under another id, so that a place in its queue that is given up late frees nobody', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const first = await take(two);
    const cancelled: string[] = [];
    const acquire = one.a.acquire.bind(one.a);
    one.a.acquire = (request) => {
      const { holder } = request;
      if (request.key === 'k') request.signal.addEventListener('abort', () => cancelled.push(holder));
      return acquire(request);
    };
    const waiting = one.locks.acquire('k', { wait: 600_000 });
    await advance(100);
    await fleet.drive(one.main.switchTo('b'));
    await advance(WINDOW / 2);
    await fleet.drive(one.main.switchTo('a'));
    await advance(100);
    await first.release();
    const lock = await fleet.drive(waiting);
    expect(on('a')).toBe(true);
    expect(cancelled).toHaveLength(1);
    // The engine is told in the background, again and again until it answers.
    for (const holder of cancelled)
      one.a.release({ key: 'k', holder, mode: 'exclusive' }, { keepFor: 0, failed: true });
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    expect(await lock.release()).toBe('released');
    expect(fleet.kept).toBe(0);
  });

  it('holds locks while the reports of many processes meet at a slow record', async () => {
    const processes = await start(10, { window: 1_000 });
    for (const { record } of processes) {
      record.onWrite = async (execute) => {
        const pause = () => fleet.passed(50);
        await pause();
        const found = execute();
        await pause();
        return found;
      };
    }
    const locks = await Promise.all(processes.map((process, index) => take(process, `k${index}`)));
    await advance(30_000);
    expect(locks.map((lock) => lock.isHeld())).not.toContain(false);
  });

  it.each([
    [1_000, 2_000],
    [5_000, 6_000],
  ])('with a window of %d ms holds a lock that its engine renews in %d ms', async (window, slowness) => {
    const [one] = (await start(1, { window, failures: 1_000 })) as [FleetProcess];
    const lock = await take(one);
    const renew = one.a.renew.bind(one.a);
    one.a.renew = async (grant, lease) => {
      const outcome = await renew(grant, lease);
      await fleet.passed(slowness);
      return outcome;
    };
    await advance(90_000);
    expect(lock.isHeld()).toBe(true);
    // What is told late is told all the same.
    expect(await one.a.forceRelease('k')).toBe(true);
    await fleet.until(() => !lock.isHeld(), 'the loss is known', 30_000);
    expect(lock.signal.reason).toMatchObject({ reason: 'revoked' });
  });

  it('leaves an engine that most miss, also when somebody has damaged the reports', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    const reports = [...fleet.store.values.keys()].find((name) => name.endsWith(':fleet')) ?? '';
    fleet.store.values.set(reports, '{"somebody":{},"nobody":null}');
    one.a.cutOff();
    await switchedTo('b', one);
  });

  it('does not say that it has switched when it is stopped', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    await fleet.drive(one.locks.stop());
    await expect(one.main.switchTo('b')).rejects.toThrow(LockUnavailableError);
  });

  describe('in a short outage', () => {
    it('of the record, whose writes are lost for 0.6 of a window, loses nothing', async () => {
      const lost: number[] = [];
      for (let phase = 0; phase <= WINDOW / 5; phase += WINDOW / 50) {
        const [one] = (await start(1)) as [FleetProcess];
        const lock = await take(one, `phase ${phase}`);
        await advance(WINDOW + phase);
        one.record.onWrite = () => new Promise(() => undefined);
        await advance(WINDOW * 0.6);
        one.record.onWrite = undefined;
        await advance(WINDOW);
        if (!lock.isHeld()) lost.push(phase);
        await fleet.drive(one.locks.stop());
      }
      expect(lost).toEqual([]);
    });

    it('of the record, writes once for all renewals that have waited for it', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      let isAsked = false;
      let thaw: () => void = () => undefined;
      const thawed = new Promise<void>((resolve) => (thaw = resolve));
      one.record.onWrite = async (execute) => {
        isAsked = true;
        await thawed;
        return execute();
      };
      await fleet.until(() => isAsked, 'a write is under way');
      const renewed = Promise.all([lock.extend(), lock.extend(), lock.extend()]);
      // Shorter than a write is waited for.
      await advance(WINDOW / 5);
      const executed = jest.spyOn(fleet.store, 'compareAndSet');
      thaw();
      await fleet.drive(renewed);
      // That which was under way, and one that was sent after they had asked.
      expect(executed.mock.calls.filter(([name]) => name === 'main')).toHaveLength(2);
      await lock.release();
    });

    it('of the engine, near the end of a lease, asks no more often than before', async () => {
      const lease = 6 * WINDOW;
      const [one] = (await start(1, { lease, failures: 1_000 })) as [FleetProcess];
      const lock = await take(one);
      const asked = jest.spyOn(one.a, 'renew');
      one.a.cutOff();
      await advance(lease - WINDOW / 5);
      expect(lock.isHeld()).toBe(true);
      // Once for each tenth of a window, as the engine of all providers asks again.
      expect(asked.mock.calls.length).toBeLessThanOrEqual((lease / WINDOW) * 10);
      one.a.restore();
      await advance(WINDOW);
      expect(lock.isHeld()).toBe(true);
      await lock.release();
    });

    it('of the engine, for half of a lease that is as short as a window, loses nothing', async () => {
      const lost: number[] = [];
      for (let phase = 0; phase <= WINDOW / 3; phase += WINDOW / 30) {
        const [one] = (await start(1, { lease: WINDOW, failures: 100 })) as [FleetProcess];
        const lock = await take(one, `phase ${phase}`);
        await advance(WINDOW + phase);
        one.a.cutOff();
        await advance(WINDOW / 2);
        one.a.restore();
        await advance(WINDOW);
        if (!lock.isHeld()) lost.push(phase);
        await fleet.drive(one.locks.stop());
      }
      expect(lost).toEqual([]);
    });
  });

  it('believes nothing after the machine was suspended, until the record and the engine have answered', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    fleet.clock.suspend(3_600_000);
    // Meanwhile another process has gone on, by clocks that this one did not see.
    two.record.onWrite = undefined;
    one.record.cutOff();
    await advance(20);
    expect(lock.isHeld()).toBe(false);
    await expect(fleet.drive(one.locks.tryAcquire('other'))).rejects.toThrow(LockUnavailableError);
    one.record.restore();
    await advance(2 * CONFIRMED);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  it('takes busy for what it is', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    for (let round = 0; round < 20; round += 1) expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    await expect(fleet.drive(two.locks.acquire('k', { wait: 500 }))).rejects.toThrow(LockTimeoutError);
    expect(two.main.state).toMatchObject({ active: 'a', engines: { a: 'up', b: 'up' } });
    await lock.release();
  });

  it('does not confirm at the cost of others: one write a fifth of the window for each process', async () => {
    await start(10);
    const before = fleet.store.writes;
    await advance(10 * WINDOW);
    // Reports to the fleet are the rest: two a window, and now and then once more.
    expect(fleet.store.writes - before).toBeLessThan(10 * 10 * (5 + 4));
  });

  it('leaves nothing behind', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    for (let round = 0; round < 50; round += 1) {
      const [lock, other] = await fleet.drive(Promise.all([one.locks.acquire('k'), two.locks.tryAcquire('k')]));
      await other?.release();
      await lock.release();
    }
    expect(fleet.kept).toBe(0);
    await fleet.stop();
    expect(fleet.clock.pendingTimers).toBe(0);
    expect([fleet.tables.a.size, fleet.tables.b.size]).toEqual([0, 0]);
  });
});
