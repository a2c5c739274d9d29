import { jest } from '@jest/globals';
import type { Lock } from '../../lib/api/lock.js';
import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import { LockBusyError, LockCapacityError, LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { EpochRecord } from '../../lib/providers/failover/epoch-record.js';
import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { DistantBackend, DistantProvider } from '../contract/memory-server.js';
import { watch } from '../core/manager-rig.js';
import { type FleetProcess, SWITCH, TestFleet, WINDOW } from './fleet-rig.js';

/** Longer than the time between two confirmations. */
const HOUR = 3_600_000;
const CONFIRMED = WINDOW / 3 + WINDOW / 20;

const recordOf = (fleet: TestFleet) => JSON.parse(fleet.shared.values.get('main') ?? '{}') as EpochRecord;

describe('failover', () => {
  let fleet: TestFleet;
  beforeEach(() => {
    fleet = new TestFleet();
  });
  afterEach(() => fleet.stop());

  const start = async (count: number, options: Parameters<TestFleet['add']>[0] = {}): Promise<FleetProcess[]> => {
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
    // No provider was asked, so there is nothing to clean up.
    expect(error).toMatchObject({ sent: false });
    return String(error.cause);
  };
  const active = ({ main }: FleetProcess) => main.state.active;
  const switchedTo = (provider: string, ...processes: FleetProcess[]) =>
    fleet.until(() => processes.every((process) => active(process) === provider), `they are on ${provider}`);
  const on = (store: 'a' | 'b', key = 'k') => fleet.stores[store].report(`lock:${key}`) !== undefined;
  const advance = (milliseconds: number) => fleet.clock.advance(milliseconds);

  it('locks on the preferred provider, among all processes', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    expect([on('a'), on('b')]).toEqual([true, false]);
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    expect(await lock.release()).toBe('released');
    expect(await (await take(two)).release()).toBe('released');
  });

  it('keeps the lock that readers of one process share until the last of them has left', async () => {
    const store = new MemoryStore();
    const queued = () =>
      fleet.start({ providers: ['q', 'b'] }, { q: new DistantProvider(store, DistantBackend, false) });
    const [one, two] = [await queued(), await queued()];
    const readers = await fleet.drive(
      Promise.all([1, 2].map(() => one.locks.acquire('k', { mode: 'shared', wait: 1_000 }))),
    );
    await readers[0]?.release();
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    await readers[1]?.release();
    await (await take(two)).release();
  });

  it('shares the queue of a provider with those that use it directly, in the order in which they came', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    const order: string[] = [];
    const inside = new Set<string>();
    const use = (name: string, provider: string) =>
      one.locks.withLock(
        'k',
        async () => {
          expect([...inside]).toEqual([]);
          inside.add(name);
          order.push(name);
          await fleet.passed(20);
          inside.delete(name);
        },
        { provider, wait: 10_000 },
      );
    const turns = ['main', 'a', 'main', 'a', 'a', 'main'];
    const all: Promise<unknown>[] = [];
    for (const [turn, provider] of turns.entries()) {
      all.push(use(`${provider} ${turn}`, provider));
      await advance(1);
    }
    await fleet.drive(Promise.all(all));
    expect(order.filter((name) => name.startsWith('a'))).toEqual(['a 1', 'a 3', 'a 4']);
    expect(order.filter((name) => name.startsWith('main'))).toEqual(['main 0', 'main 2', 'main 5']);
    // The request of the failover provider is one caller, as old as the oldest of its own.
    expect(order).toEqual(['main 0', 'a 1', 'main 2', 'a 3', 'a 4', 'main 5']);
    expect(on('a')).toBe(false);
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

  describe('when the provider fails for most', () => {
    it('goes over to the next, and nothing is granted before the last locks of the old one are over', async () => {
      const [one, two, three] = (await start(3)) as [FleetProcess, FleetProcess, FleetProcess];
      const lock = await take(one);
      one.a.cable.cutOff();
      two.a.cable.cutOff();
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
      one.a.cable.cutOff();
      await switchedTo('b', one);
      expect([short.isHeld(), long.isHeld()]).toEqual([true, true]);
      // The provider is gone: whether it was released there is not known.
      expect(await fleet.drive(short.release())).toBe('pending');
      await advance(WINDOW);
      expect(long.isHeld()).toBe(false);
      expect(long.signal.aborted).toBe(true);
    });

    it('says that it switched, once in each process', async () => {
      const processes = await start(2);
      const told = processes.map(({ locks }) => {
        const events: unknown[] = [];
        locks.events.on('failover', (event) => events.push(event));
        return events;
      });
      for (const { a } of processes) a.cable.cutOff();
      await switchedTo('b', ...processes);
      expect(told).toEqual([
        [{ provider: 'main', to: 'b', epoch: 2, reason: 'failure' }],
        [{ provider: 'main', to: 'b', epoch: 2, reason: 'failure' }],
      ]);
      expect(processes[0]?.main.state.history).toMatchObject([{ epoch: 2, from: 'a', to: 'b', reason: 'failure' }]);
      expect(processes[0]?.log).toContain(
        'Lock provider "main": provider "a" is not responding, or rejects new locks.',
      );
    });

    it('has its records where its epoch is, so a switch forgets none, and a provider that is down keeps none back', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      const { records } = one.main;
      expect(records).toBe(one.record.records);
      expect((await records!.replace('job', null, 'a')).value).toBe('a');
      for (const { a } of [one, two]) a.cable.cutOff();
      await switchedTo('b', one, two);
      expect((await two.main.records!.replace('job', 'a', 'b')).value).toBe('b');
      expect([fleet.stores.a, fleet.stores.b].map(({ records: { size } }) => size)).toEqual([0, 0]);
    });

    it('sends waiters to the new provider', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      await take(one);
      const waiting = two.locks.acquire('k', { wait: 60_000 });
      await advance(100);
      expect(fleet.stores.a.report('lock:k')?.waiters).toBe(1);
      // By hand, so that the old provider lives and shows what is left on it.
      await fleet.drive(one.main.switchTo('b'));
      await switchedTo('b', two);
      expect(fleet.stores.a.report('lock:k')?.waiters).toBe(0);
      const lock = await fleet.drive(waiting);
      expect(on('b')).toBe(true);
      await lock.release();
    });

    it('tells the provider what was released meanwhile, and keeps nothing', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.a.cable.cutOff();
      expect(await fleet.drive(lock.release())).toBe('pending');
      await advance(WINDOW + 1_000);
      expect(on('a')).toBe(true);
      one.a.cable.restore();
      await advance(0);
      expect(on('a')).toBe(false);
      expect(fleet.kept).toBe(0);
    });

    it('keeps one release, sent once a second at most, for a provider that does not come back, and nothing when it does', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.a.cable.cutOff();
      const released = jest.spyOn(one.a, 'release');
      const ofTheLock = () => released.mock.calls.filter(([{ key }]) => key === 'k').length;
      await fleet.drive(lock.release());
      await advance(5_000);
      expect(ofTheLock()).toBeGreaterThan(3);
      // Its lease has ended, but the provider may execute what was sent before.
      await advance(10_000);
      released.mockClear();
      await advance(40_000);
      expect(ofTheLock()).toBeGreaterThan(30);
      expect(ofTheLock()).toBeLessThan(90);
      one.a.cable.restore();
      await advance(1_000);
      released.mockClear();
      await advance(10_000);
      expect(ofTheLock()).toBe(0);
      expect(fleet.kept).toBe(0);
    });

    it('gives ever larger tokens, whatever those of the providers are', async () => {
      const [one] = (await start(1, { failbackDelay: 0 })) as [FleetProcess];
      const tokens: bigint[] = [];
      for (const provider of ['a', 'b', 'a', 'b']) {
        await fleet.drive(one.main.switchTo(provider));
        const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
        tokens.push(lock.fencingToken ?? 0n);
        await fleet.drive(lock.release());
        // Those of the providers go back each time.
        fleet.clock.stepWallTime(-3_600_000);
      }
      expect(tokens).toEqual([...tokens].sort((x, y) => (x < y ? -1 : 1)));
      expect(new Set(tokens).size).toBe(4);
    });
  });

  describe('when the provider refuses new locks and renews old ones', () => {
    const refuse = ({ a }: FleetProcess, error: () => Error) =>
      jest.spyOn(a, 'acquire').mockImplementation(() => Promise.reject(error()));
    const refusals: [string, () => Error][] = [
      ['as Redis does that is out of memory', () => new LockUnavailableError('OOM command not allowed')],
      ['as a database does that is read-only', () => new LockConfigError('cannot execute UPDATE')],
      ['as Redis does for lack of a permission', () => new LockConfigError('NOPERM', { refused: true })],
    ];
    // With a longer one all locks are renewed at the same moment, and several refusals between two of these count as silence.
    const window = 2_000;
    /** So many that one of them is renewed between any two failures. */
    const takeMany = async (process: FleetProcess, name = 'k'): Promise<Lock[]> => {
      const locks: Lock[] = [];
      for (let count = 0; count < 40; count += 1) {
        locks.push(await take(process, `${name}:${count}`));
        await advance(70);
      }
      return locks;
    };

    it.each(refusals)('%s: goes over to the next after a window', async (_, error) => {
      const [one, two] = (await start(2, { window, probeInterval: 2_000 })) as [FleetProcess, FleetProcess];
      const held = await takeMany(one);
      const others = await takeMany(two, 'other');
      const refusing = [one, two].map((process) => refuse(process, error));
      await advance(window * 0.9);
      expect([active(one), held.every((lock) => lock.isHeld())]).toEqual(['a', true]);
      await switchedTo('b', one, two);
      await advance(window * 2);
      // The price of a switch.
      expect([...held, ...others].some((lock) => lock.isHeld())).toBe(false);
      await (await take(one, 'new')).release();
      expect(one.main.state.providers).toEqual({ a: 'down', b: 'up' });
      // Its state does not change at each renewal.
      expect(one.log.filter((line) => line.endsWith('or rejects new locks.'))).toHaveLength(1);
      for (const each of refusing) each.mockRestore();
      await advance(5_000);
      expect(one.main.state.providers).toEqual({ a: 'recovering', b: 'up' });
    });

    it.each(refusals)('%s, for less than a window: keeps all locks', async (_, error) => {
      const [one] = (await start(1, { window, probeInterval: 2_000 })) as [FleetProcess];
      const held = await takeMany(one);
      const refusing = refuse(one, error);
      await advance(window * 0.8);
      refusing.mockRestore();
      await advance(window * 4);
      expect([active(one), held.every((lock) => lock.isHeld())]).toEqual(['a', true]);
    });

    it('and says that the server refuses it: callers wait for the switch, as in an outage', async () => {
      const [one] = (await start(1, { window, probeInterval: 2_000 })) as [FleetProcess];
      refuse(one, () => new LockConfigError('NOPERM', { refused: true }));
      await expect(fleet.drive(one.locks.tryAcquire('k'))).rejects.toThrow(LockUnavailableError);
      const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
      expect([active(one), lock.isHeld()]).toEqual(['b', true]);
    });

    it('to this process, whose own locks use up its connections: stays', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const held = await take(one);
      refuse(one, () => new LockCapacityError('No connection is free.'));
      await advance(WINDOW * 4);
      expect([active(one), held.isHeld()]).toEqual(['a', true]);
    });

    it('to one caller for a reason of its own: stays', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const held = await take(one);
      const acquire = one.a.acquire.bind(one.a);
      jest
        .spyOn(one.a, 'acquire')
        .mockImplementation((request) =>
          request.key.endsWith('bad') ? Promise.reject(new LockConfigError('wrong type')) : acquire(request),
        );
      for (let step = 0; step < 20; step += 1) {
        await expect(fleet.drive(one.locks.tryAcquire('bad'))).rejects.toThrow('wrong type');
        await advance(1_000);
      }
      expect([active(one), held.isHeld()]).toEqual(['a', true]);
    });
  });

  it('fails closed in a process that alone cannot reach the provider, and does not switch', async () => {
    const [one, two, three] = (await start(3)) as [FleetProcess, FleetProcess, FleetProcess];
    one.a.cable.cutOff();
    await expect(fleet.drive(one.locks.acquire('k', { wait: 2_000 }))).rejects.toThrow(LockUnavailableError);
    await advance(60_000);
    expect([one, two, three].map(active)).toEqual(['a', 'a', 'a']);
    expect(one.main.state.providers).toEqual({ a: 'down', b: 'up' });
    await (await take(two)).release();
  });

  describe('does not count a process that is gone', () => {
    const reports = () => Object.keys(recordOf(fleet).reports).length;

    it('and has stopped', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      await advance(WINDOW);
      expect(reports()).toBe(2);
      await fleet.drive(two.locks.stop());
      expect(reports()).toBe(1);
      one.a.cable.cutOff();
      await fleet.until(() => active(one) === 'b', 'it switches as the only one', WINDOW);
    });

    it('and has crashed, a window later', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      await advance(WINDOW);
      two.record.cable.cutOff();
      await fleet.drive(two.locks.stop());
      expect(reports()).toBe(2);
      const since = fleet.clock.now();
      one.a.cable.cutOff();
      // One of two is not most. A count shows that the other is gone, and one of one is.
      await fleet.until(() => active(one) === 'b', 'it is counted as the only one', WINDOW + SWITCH);
      expect(fleet.clock.now() - since).toBeGreaterThan(WINDOW);
      expect(reports()).toBe(1);
    });

    it('and has crashed while it missed the preferred provider, so that a failback is possible', async () => {
      const [one, two] = (await start(2, { failbackDelay: 10_000 })) as [FleetProcess, FleetProcess];
      await advance(WINDOW);
      for (const { a } of [one, two]) a.cable.cutOff();
      await switchedTo('b', one, two);
      two.record.cable.cutOff();
      await fleet.drive(two.locks.stop());
      one.a.cable.restore();
      await fleet.until(() => active(one) === 'a', 'it is back', 60_000);
    });

    it('and counts no more often than every ten windows', async () => {
      const [one] = (await start(3)) as [FleetProcess, FleetProcess, FleetProcess];
      one.a.cable.cutOff();
      await advance(35 * WINDOW);
      expect(active(one)).toBe('a');
      expect(recordOf(fleet).count).toBe(4);
      expect(reports()).toBe(3);
    });
  });

  describe('when the record fails', () => {
    it('grants nothing, and locks end when the last confirmation is over', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.record.cable.cutOff();
      await advance(WINDOW);
      expect(lock.isHeld()).toBe(false);
      expect(await refusal(one)).toContain('"main" cannot confirm the record shared by its processes');
      expect(on('a', 'other')).toBe(false);
      one.record.cable.restore();
      await advance(2 * CONFIRMED);
      await (await take(one)).release();
    });

    it.each([0.1, 0.26, 0.35, 0.45])(
      'that takes %s of a window for each answer: grants and keeps locks',
      async (share) => {
        const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
        for (const { record } of [one, two]) {
          record.onWrite = async (execute) => {
            await fleet.passed((share * WINDOW) / 2);
            const found = execute();
            await fleet.passed((share * WINDOW) / 2);
            return found;
          };
        }
        const lock = await take(one, 'long');
        for (let step = 0; step < 60; step += 1) {
          await (await take(two, 'short')).release();
          await advance(WINDOW / 3);
        }
        expect(lock.isHeld()).toBe(true);
        await lock.release();
      },
    );

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
      ['deleted', () => fleet.shared.values.clear()],
      [
        'restored from a backup',
        (past: ReadonlyMap<string, string>) => past.forEach((text, name) => fleet.shared.values.set(name, text)),
      ],
      ['damaged', () => fleet.shared.values.set('main', '{}')],
      [
        'damaged in its reports',
        () => {
          const text = fleet.shared.values.get('main') ?? '{}';
          fleet.shared.values.set('main', JSON.stringify({ ...(JSON.parse(text) as object), reports: { a: null } }));
        },
      ],
    ])('fails closed and says so when it was %s', async (_, damage) => {
      const [one] = (await start(1)) as [FleetProcess];
      const past = new Map(fleet.shared.values);
      await fleet.drive(one.main.switchTo('b'));
      await advance(2 * WINDOW);
      const lock = await take(one);
      damage(past);
      await advance(WINDOW);
      expect(lock.isHeld()).toBe(false);
      expect(await refusal(one)).toContain('cannot confirm the record');
      expect(
        one.log.filter((line) => line.includes('found its record deleted, damaged, or restored from a backup')),
      ).toHaveLength(1);
    });

    it('grants nothing more in a process whose record was deleted, whatever others make of a new one', async () => {
      const [old] = (await start(1)) as [FleetProcess];
      await fleet.drive(old.main.switchTo('b'));
      await advance(2 * WINDOW);
      fleet.shared.values.clear();
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
      fleet.shared.values.clear();
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
      expect(await refusal(one)).toMatch(/has switched to "b" and must wait another \d+ ms/);
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
      slow.record.cable.cutOff();
      await fleet.drive(quick.main.switchTo('b'));
      const next = await fleet.drive(quick.locks.acquire('k', { wait: 60_000 }));
      expect(lock.isHeld()).toBe(false);
      await next.release();
    });

    it('withdraws also in a process that does not have the new provider, and refuses there', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const other = await fleet.start({ providers: ['a', 'c'] }, { c: fleet.newProvider() });
      await fleet.drive(one.main.switchTo('b'));
      await advance(3 * WINDOW);
      expect(await refusal(other)).toContain('"main" uses "b" in other processes, but this process does not list it');
    });

    it('made by hand stays', async () => {
      const [one] = (await start(1, { failbackDelay: 0 })) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      await advance(600_000);
      expect(one.main.state).toMatchObject({ active: 'b', epoch: 2, providers: { a: 'up', b: 'up' } });
      await fleet.drive(one.main.switchTo('b'));
      expect(one.main.state.epoch).toBe(2);
    });

    it('by hand to where it is already stays as well', async () => {
      const [one] = (await start(1, { failbackDelay: 0 })) as [FleetProcess];
      one.a.cable.cutOff();
      await switchedTo('b', one);
      await fleet.drive(one.main.switchTo('b'));
      one.a.cable.restore();
      await advance(600_000);
      expect(one.main.state).toMatchObject({ active: 'b', epoch: 2, providers: { a: 'up', b: 'up' } });
    });

    it('is refused to a provider that is none', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await expect(one.main.switchTo('c')).rejects.toThrow(
        'Lock provider "main" cannot switch to "c": its providers are a, b.',
      );
    });
  });

  it('returns to the preferred provider when it has been stable, and each time later', async () => {
    const [one] = (await start(1, { failbackDelay: 60_000 })) as [FleetProcess];
    const away = async () => {
      one.a.cable.cutOff();
      await switchedTo('b', one);
      const since = fleet.clock.now();
      one.a.cable.restore();
      await fleet.until(() => active(one) === 'a', 'it is back', 600_000);
      return fleet.clock.now() - since;
    };
    const stays = [await away(), await away(), await away()];
    expect(stays.map((stay) => Math.floor(stay / 10_000))).toEqual([6, 12, 24]);
  });

  it('does not return while anybody misses the preferred provider', async () => {
    const [one, two, three] = (await start(3, { failbackDelay: 0 })) as [FleetProcess, FleetProcess, FleetProcess];
    one.a.cable.cutOff();
    two.a.cable.cutOff();
    await switchedTo('b', one, two, three);
    one.a.cable.restore();
    await advance(60_000);
    expect(active(three)).toBe('b');
    two.a.cable.restore();
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
      one.record.cable.cutOff();
      await advance(WINDOW + 1_000 + offset);
      const release = one.a.release.bind(one.a);
      let isLost = false;
      one.a.release = (holder, manner) => {
        if (holder.key !== key || isLost) return release(holder, manner);
        isLost = true;
        return Promise.resolve('unknown');
      };
      // The grant meets a confirmation that has lapsed, is given back, and the provider does not hear of it.
      one.record.cable.restore();
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

  it('comes back to a provider under another id, so that a place in its queue that is given up late frees nobody', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const first = await take(two);
    const cancelled: AcquireRequest[] = [];
    const acquire = one.a.acquire.bind(one.a);
    one.a.acquire = (request) => {
      if (request.key === 'k') request.signal.addEventListener('abort', () => cancelled.push(request));
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
    // The provider is told in the background, again and again until it answers.
    for (const request of cancelled) await one.a.release(request, { keepFor: 0, failed: true });
    await advance(CONFIRMED);
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    expect(await lock.release()).toBe('released');
    expect(fleet.kept).toBe(0);
  });

  it('confirms in time while many processes change a slow record at the same moment', async () => {
    const processes = await start(10, { window: 1_000, probeInterval: 200 });
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
    const reports = () => Object.values(recordOf(fleet).reports).filter(({ down }) => down.includes('b')).length;
    for (let round = 0; round < 3; round += 1) {
      for (const { b } of processes) b.cable.cutOff();
      await fleet.until(() => reports() === 10, 'all report that b is down');
      for (const { b } of processes) b.cable.restore();
      await fleet.until(() => reports() === 0, 'all report that it answers');
    }
    await advance(5_000);
    expect(locks.map((lock) => lock.isHeld())).not.toContain(false);
  });

  it.each([
    [1_000, 2_000],
    [5_000, 6_000],
  ])('with a window of %d ms holds a lock that its provider renews in %d ms', async (window, slowness) => {
    const [one] = (await start(1, { window, probeInterval: HOUR })) as [FleetProcess];
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

  it('does not say that it has switched when it is stopped', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    await fleet.drive(one.locks.stop());
    await expect(one.main.switchTo('b')).rejects.toThrow(LockUnavailableError);
  });

  it('stops immediately while it waits at boot for the locks of before, and leaves no timer', async () => {
    const one = fleet.add({ window: 60_000 });
    const started = watch(one.locks.start());
    await advance(1_000);
    expect(started.state).toBe('pending');
    one.record.onWrite = async (execute) => {
      await fleet.passed(50);
      return execute();
    };
    const since = fleet.clock.now();
    await fleet.drive(one.locks.stop());
    expect(fleet.clock.now() - since).toBeLessThan(500);
    expect(started.state).not.toBe('pending');
    expect(fleet.clock.pendingTimers).toBe(0);
  });

  it('does not wait at its end for a probe in flight', async () => {
    const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
    let probes = 0;
    one.b.acquire = () => {
      probes += 1;
      return new Promise(() => undefined);
    };
    await advance(3_601_000);
    expect(probes).toBe(1);
    const since = fleet.clock.now();
    await fleet.drive(one.locks.stop());
    expect(fleet.clock.now() - since).toBeLessThan(3_000);
    expect(fleet.clock.pendingTimers).toBe(0);
    expect(one.main.state.providers['b']).toBe('up');
  });

  describe('in a short outage', () => {
    it('of the record, whose writes are lost for half a window, loses nothing', async () => {
      const lost: number[] = [];
      for (let phase = 0; phase <= WINDOW / 3; phase += WINDOW / 30) {
        const [one] = (await start(1)) as [FleetProcess];
        const lock = await take(one, `phase ${phase}`);
        await advance(WINDOW + phase);
        one.record.onWrite = () => new Promise(() => undefined);
        await advance(WINDOW / 2);
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
      const executed = jest.spyOn(fleet.shared, 'compareAndSet');
      thaw();
      await fleet.drive(renewed);
      // The one in flight confirms for all of them.
      expect(executed.mock.calls.filter(([name]) => name === 'main')).toHaveLength(1);
      await lock.release();
    });

    it('of the provider, near the end of a lease, asks no more often than before', async () => {
      const lease = 2 * WINDOW;
      const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
      const lock = await take(one);
      const asked = jest.spyOn(one.a, 'renew');
      one.a.cable.cutOff();
      await advance(lease - WINDOW / 5);
      expect(lock.isHeld()).toBe(true);
      // Once for each tenth of a window, as the provider of all providers asks again.
      expect(asked.mock.calls.length).toBeLessThanOrEqual((lease / WINDOW) * 10);
      one.a.cable.restore();
      await advance(WINDOW);
      expect(lock.isHeld()).toBe(true);
      await lock.release();
    });

    it('of the provider, for half of its lease of two windows, loses nothing', async () => {
      const lost: number[] = [];
      for (let phase = 0; phase <= WINDOW / 3; phase += WINDOW / 30) {
        const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
        const lock = await take(one, `phase ${phase}`);
        await advance(WINDOW + phase);
        one.a.cable.cutOff();
        await advance(WINDOW);
        one.a.cable.restore();
        await advance(WINDOW);
        if (!lock.isHeld()) lost.push(phase);
        await fleet.drive(one.locks.stop());
      }
      expect(lost).toEqual([]);
    });
  });

  it('believes nothing after the machine was suspended, until the record and the provider have answered', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    fleet.clock.suspend(3_600_000);
    // Meanwhile another process has gone on, by clocks that this one did not see.
    two.record.onWrite = undefined;
    one.record.cable.cutOff();
    await advance(20);
    expect(lock.isHeld()).toBe(false);
    await expect(fleet.drive(one.locks.tryAcquire('other'))).rejects.toThrow(LockUnavailableError);
    one.record.cable.restore();
    await advance(2 * CONFIRMED);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
  });

  it('grants nothing by a confirmation from before a suspension, also in the same millisecond of the monotonic clock', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    const lock = await take(one);
    fleet.clock.suspend(3_600_000);
    one.record.cable.cutOff();
    await expect(fleet.drive(one.locks.tryAcquire('other'))).rejects.toThrow(LockUnavailableError);
    one.record.cable.restore();
    await lock.release();
  });

  it('grants nothing while both providers are down, and goes on when one answers', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    one.a.cable.cutOff();
    one.b.cable.cutOff();
    await expect(fleet.drive(one.locks.acquire('k', { wait: 20_000 }))).rejects.toThrow(LockUnavailableError);
    one.b.cable.restore();
    const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
    expect(active(one)).toBe('b');
    await lock.release();
  });

  it('leaves a provider that was down already when an operator chose it', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    one.b.cable.cutOff();
    await fleet.until(() => one.main.state.providers['b'] === 'down', 'b is down');
    await fleet.drive(one.main.switchTo('b'));
    await switchedTo('a', one);
    expect(one.main.state.history).toMatchObject([{ reason: 'manual' }, { reason: 'failure' }]);
  });

  it('finds a provider down that hangs, also beside another failover of the same process', async () => {
    const other = new FailoverLockProvider({ providers: ['q', 'b'], casStore: 'record' });
    const { locks, main } = await fleet.start({ providers: ['q', 'b'] }, { q: fleet.newProvider(), other });
    const beside = locks.admin.backend(FailoverBackend, 'other');
    const hanging = locks.admin.backend(DistantBackend, 'q');
    hanging.acquire = () => new Promise(() => undefined);
    await fleet.until(
      () => [main, beside].every(({ state }) => state.providers['q'] === 'down'),
      'both have found it down',
    );
  });

  it.each([
    ['waiters that leave', 450],
    ['one key', 450],
    ['one key, without waiting', 0],
  ])('leaves a provider that hangs, although its callers get busy: %s', async (traffic, wait) => {
    const q = new DistantProvider(new MemoryStore(), DistantBackend, traffic === 'waiters that leave');
    const one = await fleet.start({ providers: ['q', 'b'] }, { q });
    const hanging = one.locks.admin.backend(DistantBackend, 'q');
    hanging.acquire = async (request) => {
      const { signal, wait: remaining } = request;
      if (remaining > 0) request.waits();
      // As backends do that notify the server in the background.
      const left = new Promise<'busy'>((resolve) => {
        if (remaining > 0)
          signal.addEventListener('abort', () => {
            resolve('busy');
          });
      });
      const late = fleet.passed(2_000).then(() => {
        throw new LockUnavailableError('The statement was not answered.');
      });
      return Promise.race([left, late]);
    };
    hanging.release = () => Promise.resolve('unknown');
    for (let call = 0; call < 100 && active(one) !== 'b'; call += 1) {
      const key = traffic === 'waiters that leave' ? `k${call}` : 'hot';
      one.locks.acquire(key, { wait }).then(
        (lock) => lock.release(),
        () => undefined,
      );
      await advance(200);
    }
    expect(active(one)).toBe('b');
    hanging.release = () => Promise.resolve('released');
  });

  it('counts one broken connection as one failure, of the three in a row that it takes', async () => {
    const one = await fleet.start({ probeInterval: 4_000 });
    let probes = 0;
    one.a.acquire = () => {
      probes += 1;
      return Promise.reject(new LockUnavailableError('There is no connection.', { sent: false }));
    };
    one.a.surrounding.emit({ type: 'unavailable', cause: new Error('The connection was reset.') });
    await fleet.until(() => one.main.state.providers['a'] === 'down', 'it is down');
    expect(probes).toBe(2);
  });

  it('sends no releases for attempts that never left this process', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    one.a.acquire = () => Promise.reject(new LockUnavailableError('There is no connection.', { sent: false }));
    one.a.release = () => Promise.resolve('unknown');
    const released = jest.spyOn(one.a, 'release');
    const refused = Array.from({ length: 20 }, (_, call) => one.locks.tryAcquire(`k${call}`).catch(() => null));
    await fleet.drive(Promise.all(refused));
    await advance(1_000);
    const ofCallers = () => released.mock.calls.filter(([{ key }]) => /^k\d+$/.test(key)).length;
    // Once, for the local queue that it may have.
    expect(ofCallers()).toBeLessThanOrEqual(20);
    released.mockClear();
    await advance(10_000);
    expect(ofCallers()).toBe(0);
    expect(fleet.kept).toBe(0);
  });

  it('keeps what one provider has renewed, though another one with older locks is silent', async () => {
    const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
    const old = await take(one, 'old');
    one.a.renew = async () => {
      await fleet.passed(15_000);
      return 'unknown';
    };
    await fleet.drive(one.main.switchTo('b'));
    const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
    await advance(40_000);
    // That of the epoch before has ended with it.
    expect([lock.isHeld(), old.isHeld()]).toEqual([true, false]);
    await lock.release();
  });

  it('asks again when a grant of its provider was over before it came, which is no outage', async () => {
    const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
    const acquire = one.a.acquire.bind(one.a);
    let asks = 0;
    one.a.acquire = async (request) => {
      const answer = await acquire(request);
      asks += 1;
      return answer === 'busy' || asks > 1 ? answer : { ...answer, validUntil: fleet.clock.now() };
    };
    const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
    expect([lock.isHeld(), asks, one.log]).toEqual([true, 2, []]);
    await lock.release();
  });

  it('takes busy for what it is', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    for (let round = 0; round < 20; round += 1) expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    await expect(fleet.drive(two.locks.acquire('k', { wait: 500 }))).rejects.toThrow(LockBusyError);
    expect(two.main.state).toMatchObject({ active: 'a', providers: { a: 'up', b: 'up' } });
    await lock.release();
  });

  it('costs each process one conditional write every third of a window, with locks held and without', async () => {
    const processes = await start(20);
    await advance(2 * WINDOW);
    const executed = jest.spyOn(fleet.shared, 'compareAndSet');
    await advance(10 * WINDOW);
    expect(executed.mock.calls).toHaveLength(20 * 30);
    executed.mockClear();
    const locks = await Promise.all(processes.map((process, index) => take(process, `k${index}`)));
    await advance(10 * WINDOW);
    expect(locks.every((lock) => lock.isHeld())).toBe(true);
    expect(executed.mock.calls).toHaveLength(20 * 30);
    // Each of them confirms: none was refused because another process had written.
    expect(executed.mock.calls.every(([, expected, next]) => expected === next)).toBe(true);
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
    expect([fleet.stores.a.size, fleet.stores.b.size]).toEqual([0, 0]);
  });
});
