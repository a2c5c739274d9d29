import { jest } from '@jest/globals';
import type { Lock } from '../../lib/api/lock.js';
import type { AcquireRequest, RenewOutcome } from '../../lib/api/lock-provider.js';
import {
  LockBusyError,
  LockCapacityError,
  LockConfigError,
  LockLostError,
  LockUnavailableError,
} from '../../lib/api/errors.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { EpochRecord } from '../../lib/providers/failover/epoch-record.js';
import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { DistantBackend, DistantProvider } from '../contract/memory-server.js';
import { deferred, watch } from '../core/manager-rig.js';
import { type FleetProcess, SWITCH, TestFleet, WINDOW } from './fleet-rig.js';

const HOUR = 3_600_000;
/** Longer than the interval between two confirmations. */
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
  /** Returns why no lock can be acquired. */
  const refusal = async ({ locks }: FleetProcess): Promise<string> => {
    const error: unknown = await fleet.drive(locks.tryAcquire('other').catch((refused: unknown) => refused));
    if (!(error instanceof LockUnavailableError)) throw new Error(`Expected a LockUnavailableError: ${String(error)}`);
    // No request was sent, so there is nothing to clean up.
    expect(error).toMatchObject({ sent: false });
    return String(error.cause);
  };
  const active = ({ main }: FleetProcess) => main.state.active;
  const switchedTo = (provider: string, ...processes: FleetProcess[]) =>
    fleet.until(() => processes.every((process) => active(process) === provider), `they are on ${provider}`);
  const on = (store: 'a' | 'b', key = 'k') => fleet.stores[store].report(`lock:${key}`) !== undefined;
  const advance = (milliseconds: number) => fleet.clock.advance(milliseconds);

  it('locks on the preferred provider, across all processes', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    expect([on('a'), on('b')]).toEqual([true, false]);
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    expect(await lock.release()).toBe('released');
    expect(await (await take(two)).release()).toBe('released');
  });

  it('keeps a lock shared by readers of one process until the last reader has released it', async () => {
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

  it('queues together with callers that use the provider directly, in order of arrival', async () => {
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
    // A request of the failover provider counts as one caller, as old as its oldest waiter.
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

  describe('when the provider fails for most processes', () => {
    it('switches to the next provider, and grants nothing before the last locks on the old one have ended', async () => {
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

    it('lets a short task finish, and ends the lock of a long one at its deadline', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const [short, long] = [await take(one, 'short'), await take(one, 'long')];
      one.a.cable.cutOff();
      await switchedTo('b', one);
      expect([short.isHeld(), long.isHeld()]).toEqual([true, true]);
      // The provider is unreachable, so it's unknown whether the lock was released there.
      expect(await fleet.drive(short.release())).toBe('pending');
      await advance(WINDOW);
      expect(long.isHeld()).toBe(false);
      expect(long.signal.aborted).toBe(true);
    });

    it('emits one failover event in each process', async () => {
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

    it('stores job records on the "casStore", so that a switch loses none and a provider outage withholds none', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      const { records } = one.main;
      expect(records).toBe(one.record.records);
      expect((await records!.replace('job', null, 'a')).value).toBe('a');
      for (const { a } of [one, two]) a.cable.cutOff();
      await switchedTo('b', one, two);
      expect((await two.main.records!.replace('job', 'a', 'b')).value).toBe('b');
      expect([fleet.stores.a, fleet.stores.b].map(({ records: { size } }) => size)).toEqual([0, 0]);
    });

    it('moves waiters to the new provider', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      await take(one);
      const waiting = two.locks.acquire('k', { wait: 60_000 });
      await advance(100);
      expect(fleet.stores.a.report('lock:k')?.waiters).toBe(1);
      // A manual switch, so that the old provider is up and shows what is left on it.
      await fleet.drive(one.main.switchTo('b'));
      await switchedTo('b', two);
      expect(fleet.stores.a.report('lock:k')?.waiters).toBe(0);
      const lock = await fleet.drive(waiting);
      expect(on('b')).toBe(true);
      await lock.release();
    });

    it('sends a pending release when the provider is back, and retains nothing', async () => {
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

    it('retries a pending release about once a second while the provider is down, and stops when it is back', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      one.a.cable.cutOff();
      const released = jest.spyOn(one.a, 'release');
      const ofTheLock = () => released.mock.calls.filter(([{ key }]) => key === 'k').length;
      await fleet.drive(lock.release());
      await advance(5_000);
      expect(ofTheLock()).toBeGreaterThan(3);
      // The lease has ended, but the provider may still execute earlier commands.
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

    it("issues increasing tokens, whatever the providers' own tokens are", async () => {
      const [one] = (await start(1, { failbackDelay: 0 })) as [FleetProcess];
      const tokens: bigint[] = [];
      for (const provider of ['a', 'b', 'a', 'b']) {
        await fleet.drive(one.main.switchTo(provider));
        const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
        tokens.push(lock.fencingToken ?? 0n);
        await fleet.drive(lock.release());
        // The providers' own tokens decrease each time.
        fleet.clock.stepWallTime(-3_600_000);
      }
      expect(tokens).toEqual([...tokens].sort((x, y) => (x < y ? -1 : 1)));
      expect(new Set(tokens).size).toBe(4);
    });
  });

  describe('when the provider rejects new locks but renews held ones', () => {
    const refuse = ({ a }: FleetProcess, error: () => Error) =>
      jest.spyOn(a, 'acquire').mockImplementation(() => Promise.reject(error()));
    const refusals: [string, () => Error][] = [
      ['Redis is out of memory', () => new LockUnavailableError('OOM command not allowed')],
      ['a database is read-only', () => new LockConfigError('cannot execute UPDATE')],
      ['Redis denies a permission', () => new LockConfigError('NOPERM', { refused: true })],
    ];
    // With a longer window, all locks are renewed at the same moment, and several rejections between two renewals count
    // as silence.
    const window = 2_000;
    /** Takes enough locks that one of them is renewed between any two failures. */
    const takeMany = async (process: FleetProcess, name = 'k'): Promise<Lock[]> => {
      const locks: Lock[] = [];
      for (let count = 0; count < 40; count += 1) {
        locks.push(await take(process, `${name}:${count}`));
        await advance(70);
      }
      return locks;
    };

    it.each(refusals)('switches to the next provider after a window: %s', async (_, error) => {
      const [one, two] = (await start(2, { window, probeInterval: 2_000 })) as [FleetProcess, FleetProcess];
      const held = await takeMany(one);
      const others = await takeMany(two, 'other');
      const refusing = [one, two].map((process) => refuse(process, error));
      await advance(window * 0.9);
      expect([active(one), held.every((lock) => lock.isHeld())]).toEqual(['a', true]);
      await switchedTo('b', one, two);
      await advance(window * 2);
      // A switch costs the held locks.
      expect([...held, ...others].some((lock) => lock.isHeld())).toBe(false);
      await (await take(one, 'new')).release();
      expect(one.main.state.providers).toEqual({ a: 'down', b: 'up' });
      // Renewals don't change the state each time.
      expect(one.log.filter((line) => line.endsWith('or rejects new locks.'))).toHaveLength(1);
      for (const each of refusing) each.mockRestore();
      await advance(5_000);
      expect(one.main.state.providers).toEqual({ a: 'recovering', b: 'up' });
    });

    it.each(refusals)('keeps all locks if the rejections last less than a window: %s', async (_, error) => {
      const [one] = (await start(1, { window, probeInterval: 2_000 })) as [FleetProcess];
      const held = await takeMany(one);
      const refusing = refuse(one, error);
      await advance(window * 0.8);
      refusing.mockRestore();
      await advance(window * 4);
      expect([active(one), held.every((lock) => lock.isHeld())]).toEqual(['a', true]);
    });

    it('lets callers wait for the switch if the server denies access, as in an outage', async () => {
      const [one] = (await start(1, { window, probeInterval: 2_000 })) as [FleetProcess];
      refuse(one, () => new LockConfigError('NOPERM', { refused: true }));
      await expect(fleet.drive(one.locks.tryAcquire('k'))).rejects.toThrow(LockUnavailableError);
      const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
      expect([active(one), lock.isHeld()]).toEqual(['b', true]);
    });

    it('does not switch if this process used up its connections with its own locks', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const held = await take(one);
      refuse(one, () => new LockCapacityError('No connection is free.'));
      await advance(WINDOW * 4);
      expect([active(one), held.isHeld()]).toEqual(['a', true]);
    });

    it('does not switch if only one key is rejected', async () => {
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

  it('fails closed without a switch if only one process cannot reach the provider', async () => {
    const [one, two, three] = (await start(3)) as [FleetProcess, FleetProcess, FleetProcess];
    one.a.cable.cutOff();
    await expect(fleet.drive(one.locks.acquire('k', { wait: 2_000 }))).rejects.toThrow(LockUnavailableError);
    await advance(60_000);
    expect([one, two, three].map(active)).toEqual(['a', 'a', 'a']);
    expect(one.main.state.providers).toEqual({ a: 'down', b: 'up' });
    await (await take(two)).release();
  });

  describe('a process that is gone', () => {
    const reports = () => Object.keys(recordOf(fleet).reports).length;

    it('no longer counts for the majority after it has stopped', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      await advance(WINDOW);
      expect(reports()).toBe(2);
      await fleet.drive(two.locks.stop());
      expect(reports()).toBe(1);
      one.a.cable.cutOff();
      await fleet.until(() => active(one) === 'b', 'the only process switches', WINDOW);
    });

    it('no longer counts for the majority a window after it has crashed', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      await advance(WINDOW);
      two.record.cable.cutOff();
      await fleet.drive(two.locks.stop());
      expect(reports()).toBe(2);
      const since = fleet.clock.now();
      one.a.cable.cutOff();
      // One of two is no majority. A count then shows that the other process is gone, and one of one is a majority.
      await fleet.until(() => active(one) === 'b', 'the only process switches', WINDOW + SWITCH);
      expect(fleet.clock.now() - since).toBeGreaterThan(WINDOW);
      expect(reports()).toBe(1);
    });

    it('does not prevent a failback, although it crashed while it could not reach the preferred provider', async () => {
      const [one, two] = (await start(2, { failbackDelay: 10_000 })) as [FleetProcess, FleetProcess];
      await advance(WINDOW);
      for (const { a } of [one, two]) a.cable.cutOff();
      await switchedTo('b', one, two);
      two.record.cable.cutOff();
      await fleet.drive(two.locks.stop());
      one.a.cable.restore();
      await fleet.until(() => active(one) === 'a', 'it has failed back', 60_000);
    });

    it('is looked for at most every ten windows', async () => {
      const [one] = (await start(3)) as [FleetProcess, FleetProcess, FleetProcess];
      one.a.cable.cutOff();
      await advance(35 * WINDOW);
      expect(active(one)).toBe('a');
      expect(recordOf(fleet).count).toBe(4);
      expect(reports()).toBe(3);
    });
  });

  describe('when the record fails', () => {
    it('grants nothing, and ends locks when the last confirmation expires', async () => {
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

    it.each([0.1, 0.26, 0.35, 0.45])('grants and keeps locks if each reply takes %s of a window', async (share) => {
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
    });

    it('survives one lost reply', async () => {
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

    it('waits a whole window for its first reply, which may require a connection and a table', async () => {
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

    it('follows its own switch if the reply to it was lost', async () => {
      const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
      let lost = 0;
      one.record.onWrite = (execute) => {
        const found = execute();
        if (!found?.includes('"active":"b"') || lost > 0) return Promise.resolve(found);
        lost += 1;
        return new Promise(() => {});
      };
      await expect(fleet.drive(one.main.switchTo('b'))).rejects.toThrow(LockUnavailableError);
      // It can't know the outcome, so it grants nothing until it has read the record.
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
    ])('fails closed and logs it if the record was %s', async (_, damage) => {
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

    it('grants nothing in a process whose record was deleted, even if other processes create a new one', async () => {
      const [old] = (await start(1)) as [FleetProcess];
      await fleet.drive(old.main.switchTo('b'));
      await advance(2 * WINDOW);
      fleet.shared.values.clear();
      await advance(WINDOW);
      // The new history reaches the same epoch through its own switch.
      const late = await fleet.start();
      await fleet.drive(late.main.switchTo('b'));
      await advance(3 * WINDOW);
      expect(late.main.state.epoch).toBe(old.main.state.epoch);
      const lock = await take(late);
      expect(await refusal(old)).toContain('cannot confirm the record');
      await lock.release();
    });

    it('does not grant a lock that is still held under a deleted record', async () => {
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
    it('waits until the previous locks have ended, and reports how long', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      expect(await refusal(one)).toMatch(/has switched to "b" and must wait another \d+ ms/);
      await advance(1.01 * WINDOW + 2);
      await (await take(one)).release();
    });

    it('does not delay processes that start later', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      await advance(2 * WINDOW);
      const before = fleet.clock.now();
      const late = await fleet.start();
      await (await take(late)).release();
      expect(fleet.clock.now() - before).toBeLessThan(WINDOW / 2);
    });

    it('waits for the longest window of any process, as in a deployment that shortens it', async () => {
      const [slow] = (await start(1, { window: 4 * WINDOW })) as [FleetProcess];
      const quick = await fleet.start({ window: WINDOW / 2 });
      const lock = await take(slow);
      slow.record.cable.cutOff();
      await fleet.drive(quick.main.switchTo('b'));
      const next = await fleet.drive(quick.locks.acquire('k', { wait: 60_000 }));
      expect(lock.isHeld()).toBe(false);
      await next.release();
    });

    it('gives up its locks in a process that does not list the new provider, and refuses new ones there', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      const other = await fleet.start({ providers: ['a', 'c'] }, { c: fleet.newProvider() });
      await fleet.drive(one.main.switchTo('b'));
      await advance(3 * WINDOW);
      expect(await refusal(other)).toContain('"main" uses "b" in other processes, but this process does not list it');
    });

    it('does not fail back after a manual switch', async () => {
      const [one] = (await start(1, { failbackDelay: 0 })) as [FleetProcess];
      await fleet.drive(one.main.switchTo('b'));
      await advance(600_000);
      expect(one.main.state).toMatchObject({ active: 'b', epoch: 2, providers: { a: 'up', b: 'up' } });
      await fleet.drive(one.main.switchTo('b'));
      expect(one.main.state.epoch).toBe(2);
    });

    it('does not fail back after a manual switch to the provider that is already active', async () => {
      const [one] = (await start(1, { failbackDelay: 0 })) as [FleetProcess];
      one.a.cable.cutOff();
      await switchedTo('b', one);
      await fleet.drive(one.main.switchTo('b'));
      one.a.cable.restore();
      await advance(600_000);
      expect(one.main.state).toMatchObject({ active: 'b', epoch: 2, providers: { a: 'up', b: 'up' } });
    });

    it('refuses to switch to an unknown provider', async () => {
      const [one] = (await start(1)) as [FleetProcess];
      await expect(one.main.switchTo('c')).rejects.toThrow(
        'Lock provider "main" cannot switch to "c": its providers are a, b.',
      );
    });
  });

  it('fails back once the preferred provider is stable, waiting longer each time', async () => {
    const [one] = (await start(1, { failbackDelay: 60_000 })) as [FleetProcess];
    const away = async () => {
      one.a.cable.cutOff();
      await switchedTo('b', one);
      const since = fleet.clock.now();
      one.a.cable.restore();
      await fleet.until(() => active(one) === 'a', 'it has failed back', 600_000);
      return fleet.clock.now() - since;
    };
    const stays = [await away(), await away(), await away()];
    expect(stays.map((stay) => Math.floor(stay / 10_000))).toEqual([6, 12, 24]);
  });

  it('does not fail back while any process cannot reach the preferred provider', async () => {
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

  it('requests again under a new id after releasing an unconfirmed grant, so that a lost release cannot free the new one', async () => {
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
      // The grant finds an expired confirmation and is released, but the release never reaches the provider.
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

  it('returns to a provider under a new id, so that a late release of its old place in the queue frees nothing', async () => {
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
    // The release is sent in the background, and retried until the provider replies.
    for (const request of cancelled) await one.a.release(request, { keepFor: 0, failed: true });
    await advance(CONFIRMED);
    expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    expect(await lock.release()).toBe('released');
    expect(fleet.kept).toBe(0);
  });

  it('confirms in time while many processes change a slow record at once', async () => {
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
      await fleet.until(() => reports() === 0, 'all report that b is up');
    }
    await advance(5_000);
    expect(locks.map((lock) => lock.isHeld())).not.toContain(false);
  });

  it.each([
    [1_000, 2_000],
    [5_000, 6_000],
  ])('with a window of %d ms, holds a lock whose provider takes %d ms to renew it', async (window, slowness) => {
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
    // A late loss is still reported.
    expect(await one.a.forceRelease('k')).toBe(true);
    await fleet.until(() => !lock.isHeld(), 'the loss is known', 30_000);
    expect(lock.signal.reason).toMatchObject({ reason: 'revoked' });
  });

  it('checks its locks on a key with the provider after it has freed the key', async () => {
    const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
    const lock = await take(one);
    one.a.forceRelease = () => Promise.resolve(true);
    one.a.renew = () => Promise.resolve('lost');
    await fleet.drive(one.locks.admin.forceRelease('k'));
    expect(lock.signal.reason).toMatchObject({ reason: 'revoked' });
  });

  it('rejects a switch when it is stopped', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    await fleet.drive(one.locks.stop());
    await expect(one.main.switchTo('b')).rejects.toThrow(LockUnavailableError);
  });

  it.each(['the record', 'its provider and then the record'])(
    'ends a renewal that waits for %s when it stops while the record is down',
    async (awaited) => {
      const [one] = (await start(1)) as [FleetProcess];
      const lock = await take(one);
      let failures = 0;
      one.record.onWrite = () => {
        failures += 1;
        return Promise.reject(new Error('down'));
      };
      await fleet.until(() => failures > 0, 'a write has failed');
      const answer = deferred<RenewOutcome>();
      if (awaited !== 'the record') {
        one.a.renew = () => answer.promise;
        // Makes every lock ask its provider.
        one.a.surrounding.emit({ type: 'recovered' });
      }
      const renewed = watch(lock.extend());
      await advance(0);
      expect(renewed.state).toBe('pending');
      await fleet.drive(one.locks.stop());
      answer.resolve('unknown');
      await advance(0);
      expect([renewed.error, failures]).toEqual([expect.any(LockLostError), 1]);
      expect(fleet.clock.pendingTimers).toBe(0);
    },
  );

  it('stops immediately while it waits at boot for previous locks to end, and leaves no timer', async () => {
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

  it('does not wait for a probe in flight when it stops', async () => {
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
    it('of the record, keeps locks although writes are lost for half a window', async () => {
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

    it('of the record, writes once for all renewals that waited for it', async () => {
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
      await fleet.until(() => isAsked, 'a write is in flight');
      const renewed = Promise.all([lock.extend(), lock.extend(), lock.extend()]);
      // Shorter than the timeout of a write.
      await advance(WINDOW / 5);
      const executed = jest.spyOn(fleet.shared, 'compareAndSet');
      thaw();
      await fleet.drive(renewed);
      // The write in flight confirms for all of them.
      expect(executed.mock.calls.filter(([name]) => name === 'main')).toHaveLength(1);
      await lock.release();
    });

    it('of the provider, does not retry more often near the end of a lease', async () => {
      const lease = 2 * WINDOW;
      const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
      const lock = await take(one);
      const asked = jest.spyOn(one.a, 'renew');
      one.a.cable.cutOff();
      await advance(lease - WINDOW / 5);
      expect(lock.isHeld()).toBe(true);
      // At most once per tenth of a window, which is the failover provider's own retry interval.
      expect(asked.mock.calls.length).toBeLessThanOrEqual((lease / WINDOW) * 10);
      one.a.cable.restore();
      await advance(WINDOW);
      expect(lock.isHeld()).toBe(true);
      await lock.release();
    });

    it('of the provider, keeps locks although it lasts half of a lease of two windows', async () => {
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

  it('trusts no lock after the machine was suspended, until the record and the provider have replied', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    fleet.clock.suspend(3_600_000);
    // Another process kept running in the meantime, on clocks that this one didn't see.
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

  it('grants nothing under a confirmation from before a suspension, even in the same millisecond of the monotonic clock', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    const lock = await take(one);
    fleet.clock.suspend(3_600_000);
    one.record.cable.cutOff();
    await expect(fleet.drive(one.locks.tryAcquire('other'))).rejects.toThrow(LockUnavailableError);
    one.record.cable.restore();
    await lock.release();
  });

  it('grants nothing while both providers are down, and grants again when one is back', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    one.a.cable.cutOff();
    one.b.cable.cutOff();
    await expect(fleet.drive(one.locks.acquire('k', { wait: 20_000 }))).rejects.toThrow(LockUnavailableError);
    one.b.cable.restore();
    const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
    expect(active(one)).toBe('b');
    await lock.release();
  });

  it('switches away from a provider that was already down when an operator chose it', async () => {
    const [one] = (await start(1)) as [FleetProcess];
    one.b.cable.cutOff();
    await fleet.until(() => one.main.state.providers['b'] === 'down', 'b is down');
    await fleet.drive(one.main.switchTo('b'));
    await switchedTo('a', one);
    expect(one.main.state.history).toMatchObject([{ reason: 'manual' }, { reason: 'failure' }]);
  });

  it('detects a hanging provider, even with another failover in the same process', async () => {
    const other = new FailoverLockProvider({ providers: ['q', 'b'], casStore: 'record' });
    const { locks, main } = await fleet.start({ providers: ['q', 'b'] }, { q: fleet.newProvider(), other });
    const beside = locks.admin.backend(FailoverBackend, 'other');
    const hanging = locks.admin.backend(DistantBackend, 'q');
    hanging.acquire = () => new Promise(() => undefined);
    await fleet.until(
      () => [main, beside].every(({ state }) => state.providers['q'] === 'down'),
      'both have detected it',
    );
  });

  it.each([
    ['waiters that leave', 450],
    ['one key', 450],
    ['one key, without waiting', 0],
  ])('switches away from a hanging provider, although its callers get busy: %s', async (traffic, wait) => {
    const q = new DistantProvider(new MemoryStore(), DistantBackend, traffic === 'waiters that leave');
    const one = await fleet.start({ providers: ['q', 'b'] }, { q });
    const hanging = one.locks.admin.backend(DistantBackend, 'q');
    hanging.acquire = async (request) => {
      const { signal, wait: remaining } = request;
      if (remaining > 0) request.waits();
      // Like backends that notify the server in the background.
      const left = new Promise<'busy'>((resolve) => {
        if (remaining > 0)
          signal.addEventListener('abort', () => {
            resolve('busy');
          });
      });
      const late = fleet.passed(2_000).then(() => {
        throw new LockUnavailableError('The statement timed out.');
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

  it('counts one broken connection as one of the three failures in a row that mark a provider as down', async () => {
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
    // One for each, because the backend may have a local queue.
    expect(ofCallers()).toBeLessThanOrEqual(20);
    released.mockClear();
    await advance(10_000);
    expect(ofCallers()).toBe(0);
    expect(fleet.kept).toBe(0);
  });

  it('keeps locks renewed by one provider, although another one with older locks is silent', async () => {
    const [one] = (await start(1, { probeInterval: HOUR })) as [FleetProcess];
    const old = await take(one, 'old');
    one.a.renew = async () => {
      await fleet.passed(15_000);
      return 'unknown';
    };
    await fleet.drive(one.main.switchTo('b'));
    const lock = await fleet.drive(one.locks.acquire('k', { wait: 60_000 }));
    await advance(40_000);
    // The old lock ended with its epoch.
    expect([lock.isHeld(), old.isHeld()]).toEqual([true, false]);
    await lock.release();
  });

  it('requests again if a grant of its provider expired before it arrived, which is not an outage', async () => {
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

  it('does not treat busy as a failure', async () => {
    const [one, two] = (await start(2)) as [FleetProcess, FleetProcess];
    const lock = await take(one);
    for (let round = 0; round < 20; round += 1) expect(await fleet.drive(two.locks.tryAcquire('k'))).toBeNull();
    await expect(fleet.drive(two.locks.acquire('k', { wait: 500 }))).rejects.toThrow(LockBusyError);
    expect(two.main.state).toMatchObject({ active: 'a', providers: { a: 'up', b: 'up' } });
    await lock.release();
  });

  it('costs each process one conditional write every third of a window, with and without held locks', async () => {
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
    // Every write confirms: none failed because another process had written.
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
