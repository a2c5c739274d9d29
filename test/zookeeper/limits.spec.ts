import { jest } from '@jest/globals';
import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import { readWrite } from '../../lib/providers/zookeeper/recipe.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { FakeClock } from '../../lib/testing/index.js';
import { contextFor } from '../backend-context.js';
import { exploration, SEED } from '../exploration.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { FakeZooKeeper, startOn } from './fake-zookeeper.js';
import { LaggingZooKeeper } from './lagging-zookeeper.js';
import { granted, request, startBackend, type TestRequest, until, untilWaiting, zooKeeperForTests } from './seam.js';
import { type DirectBackend, direct, type TestGrant } from '../direct-backend.js';

jest.setTimeout(60_000);

type Terms = Pick<AcquireRequest, 'mode' | 'limited'>;
const limited = (limit: number, weight = 1): Terms => ({ mode: 'limited', limited: { limit, weight } });

const KINDS = [
  limited(2),
  limited(2),
  limited(2, 2),
  limited(3),
  limited(3, 2),
  { mode: 'shared' },
  { mode: 'exclusive' },
] as const satisfies readonly Terms[];
const PROCESSES = 5;
const TURNS = 4;

/** A process that requests, waits, perhaps leaves, holds and releases, `TURNS` times. */
class Caller {
  turns = TURNS;
  asked: TestRequest | undefined;
  grant: TestGrant | undefined;
  hasLeft = false;

  constructor(readonly backend: DirectBackend<ZooKeeperBackend>) {}

  get isDone(): boolean {
    return this.turns === 0 && !this.asked;
  }

  get isWaiting(): boolean {
    return this.asked !== undefined && !this.grant && !this.hasLeft;
  }
}

/**
 * Plays one order of events: each step draws which process acts, which server answers, or which server applies a change
 * of the leader. Fails if two holders exclude each other, or if a waiter could enter when nothing is in flight.
 */
async function play(seed: number): Promise<void> {
  const random = new SeededRandom(seed);
  const clock = new FakeClock();
  const ensemble = new LaggingZooKeeper(clock);
  const settings = readOptions({ connectString: 'nowhere', sessionTimeout: 12_000 });
  const callers = Array.from(
    { length: PROCESSES },
    () => new Caller(direct(new ZooKeeperBackend(contextFor([], { clock }), settings, ensemble.connect))),
  );
  const connecting = Promise.all(callers.map(({ backend }) => backend.connect()));
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const settleAll = async () => {
    for (await settle(); ensemble.steps.length > 0; await settle()) random.pick(ensemble.steps as [() => void])();
  };
  await settleAll();
  await connecting;

  let excess: string | undefined;
  const held = () => callers.flatMap(({ grant, asked }) => (grant && asked ? [asked] : []));
  const ask = (caller: Caller) => {
    const asked = request('order', random.pick(KINDS));
    Object.assign(caller, { asked, turns: caller.turns - 1, hasLeft: false });
    void caller.backend.acquire(asked).then((answer) => {
      if (answer === 'busy') caller.asked = undefined;
      else if (caller.hasLeft) void caller.backend.release(answer).then(() => (caller.asked = undefined));
      else {
        caller.grant = answer;
        excess ??= excessOf(held());
      }
    });
  };
  const leave = (caller: Caller) => {
    caller.hasLeft = true;
    caller.asked?.abort();
  };
  const release = (caller: Caller) => {
    const grant = caller.grant as TestGrant;
    caller.grant = undefined;
    caller.hasLeft = true;
    void caller.backend.release(grant).then(() => (caller.asked = undefined));
  };
  const actionsOf = (caller: Caller): (() => void)[] => {
    if (caller.grant) return [() => release(caller)];
    return !caller.asked && caller.turns > 0 ? [() => ask(caller)] : [];
  };

  while (!callers.every(({ isDone }) => isDone)) {
    if (excess !== undefined) throw new Error(`Seed ${seed}: ${excess}.`);
    const steps = [...ensemble.steps, ...callers.flatMap(actionsOf)];
    if (steps.length === 0) throw new Error(`Seed ${seed}: nothing can happen, and some processes still wait.`);
    const leaving = callers.filter(({ isWaiting }) => isWaiting).map((caller) => () => leave(caller));
    random.pick((random.fraction() < 0.03 && leaving.length > 0 ? leaving : steps) as [() => void])();
    await settle();
    if (random.fraction() > 0.1) continue;
    await settleAll();
    // Nothing is in flight, so every waiter has been notified of everything relevant.
    const holders = readWrite.holdersOf(ensemble.namesIn('/lock/order'));
    if (holders.length !== held().length) throw new Error(`Seed ${seed}: a waiter could enter, and was not notified.`);
  }
}

/** Returns what is wrong if these locks are held at the same time. */
function excessOf(held: readonly Terms[]): string | undefined {
  if (held.length < 2) return undefined;
  if (held.some(({ mode }) => mode === 'exclusive')) return 'an exclusive lock alongside others';
  if (new Set(held.map(({ mode }) => mode)).size > 1) return 'shared and limited locks';
  const terms = held.flatMap((each) => each.limited ?? []);
  const used = terms.reduce((sum, { weight }) => sum + weight, 0);
  return used > Math.min(...terms.map(({ limit }) => limit)) ? `${used} at a time` : undefined;
}

describe('limits on ZooKeeper', () => {
  it(`hold in any order of events, and every waiter enters (LOCK_TESTS_SEED=${SEED})`, async () => {
    for (let game = 0; game < exploration(150, 3_000); game += 1) await play(SEED + game);
  });
});

describe('a waiter behind an admitted waiter that is frozen', () => {
  let server: FakeZooKeeper;
  const clocks: FakeClock[] = [];

  /** Starts a process with its own clock, which stands still until the test advances it. */
  async function start() {
    const clock = new FakeClock();
    clocks.push(clock);
    return { clock, backend: await startOn(server, { clock }), client: server.client };
  }

  beforeEach(() => {
    server = new FakeZooKeeper();
    clocks.length = 0;
  });

  it('enters within a second, and leaves no timer', async () => {
    const [holder, frozen, next, last] = [await start(), await start(), await start(), await start()];
    const held = granted(await holder.backend.acquire(request('pool', limited(2, 2))));
    const { pendingTimers } = next.clock;
    void frozen.backend.acquire(request('pool', limited(2)));
    await next.clock.advance(0);
    const waiting = next.backend.acquire(request('pool', limited(2)));
    await next.clock.advance(0);
    const leaving = request('pool', limited(2));
    const left = last.backend.acquire(leaving);
    await next.clock.advance(0);
    expect(next.clock.pendingTimers).toBe(pendingTimers + 1);

    frozen.client.wire = 'silent';
    await holder.backend.release(held);
    let isGranted = false;
    void waiting.then(() => (isGranted = true));
    await next.clock.advance(990);
    expect(isGranted).toBe(false);
    await next.clock.advance(10);
    expect(isGranted).toBe(true);
    expect(next.clock.pendingTimers).toBe(pendingTimers);

    await last.clock.advance(5_000);
    expect(last.clock.pendingTimers).toBe(pendingTimers + 1);
    leaving.abort();
    expect(await left).toBe('busy');
    await last.clock.advance(0);
    expect(last.clock.pendingTimers).toBe(pendingTimers);
    for (const { backend } of [holder, next, last]) await backend.close();
    expect([holder, next, last].map(({ clock }) => clock.pendingTimers)).toEqual([0, 0, 0]);
  });

  it('checks the queue periodically only if it is limited', async () => {
    const [holder, waiter] = [await start(), await start()];
    granted(await holder.backend.acquire(request('order')));
    const { pendingTimers } = waiter.clock;
    for (const mode of ['exclusive', 'shared'] as const) void waiter.backend.acquire(request('order', { mode }));
    await waiter.clock.advance(0);
    expect(waiter.clock.pendingTimers).toBe(pendingTimers);
  });
});

describe('limits on a real server', () => {
  const zk = zooKeeperForTests();
  let wire: TcpProxy;

  beforeEach(async () => {
    wire = await startTcpProxy(zk.server.port);
  });
  afterEach(() => wire.close());

  let keys = 0;
  const newKey = () => `limited:${(keys += 1)}`;
  const direct = (recipe?: 'mutex') =>
    startBackend({ connectString: zk.server.connectString, sessionTimeout: 30_000, recipe });

  it.each([
    [undefined, /^_c_[0-9a-f-]{36}-limit-5-2-__WRIT__0000000000$/],
    ['mutex', /^_c_[0-9a-f-]{36}-limit-5-2-lock-0000000000$/],
  ] as const)('are in the node names, which never change, with recipe %s', async (recipe, name) => {
    const [{ backend }, other, key] = [await direct(recipe), await direct(recipe), newKey()];
    const grant = granted(await backend.acquire(request(key, limited(5, 2))));
    const names = await zk.admin.children(`/lock/${key}`);
    expect(names).toEqual([expect.stringMatching(name)]);
    expect(grant.fencingToken).toBeNull();
    granted(await other.backend.acquire(request(key, limited(5, 3))));
    expect(await backend.acquire(request(key, { ...limited(5), wait: 0 }))).toBe('busy');
    expect(await backend.acquire(request(key, { wait: 0 }))).toBe('busy');
    await backend.release(grant);
    granted(await backend.acquire(request(key, { ...limited(5), wait: 0 })));
  });

  it('wake few of 200 waiters on a release', async () => {
    const [holder, key] = [await direct(), newKey()];
    // The clock stands still, so no waiter checks the queue without being woken.
    const { connectString } = zk.server;
    const waiters = await startBackend({ connectString, sessionTimeout: 30_000 }, { clock: new FakeClock() });
    const held = granted(await holder.backend.acquire(request(key, limited(2))));
    granted(await holder.backend.acquire(request(key, limited(2))));
    const waiting = Array.from({ length: 200 }, () => waiters.backend.acquire(request(key, limited(2))));
    await untilWaiting(waiters, 200);
    const received = async () => Number(/zk_packets_received\t(\d+)/.exec(await zk.server.ask('mntr'))![1]);
    const before = await received();
    await holder.backend.release(held);
    granted(await Promise.race(waiting));
    // The release, the checks of the next two, heartbeats every few seconds and the test's own requests: far from 200.
    expect((await received()) - before).toBeLessThan(100);
    await waiters.backend.close();
  });

  it('admit a waiter that was cut off while a holder released', async () => {
    const [holder, key] = [await direct(), newKey()];
    const waiter = await startBackend({ connectString: `127.0.0.1:${wire.port}`, sessionTimeout: 30_000 });
    const held = [
      granted(await holder.backend.acquire(request(key, limited(2)))),
      granted(await holder.backend.acquire(request(key, limited(2)))),
    ];
    const answers = [1, 2].map(() => waiter.backend.acquire(request(key, limited(2))));
    await untilWaiting(waiter, 2);
    wire.refuse();
    await until(() => waiter.events.some(({ type }) => type === 'unavailable'), 'the waiter is cut off');
    for (const grant of held) await holder.backend.release(grant);
    wire.admit();
    for (const answer of await Promise.all(answers)) granted(answer);
  });

  it('admit a waiter behind a frozen one if there is room for both', async () => {
    const [holder, next, key] = [await direct(), await direct(), newKey()];
    const frozen = await startBackend({ connectString: `127.0.0.1:${wire.port}`, sessionTimeout: 30_000 });
    const held = granted(await holder.backend.acquire(request(key, limited(2, 2))));
    const standing = frozen.backend.acquire(request(key, limited(2)));
    await untilWaiting(frozen);
    const waiting = next.backend.acquire(request(key, limited(2)));
    await untilWaiting(next);
    wire.freeze();
    await holder.backend.release(held);
    granted(await waiting);
    // According to the node names, the first waiter holds. It finds that out when it continues.
    expect(await holder.backend.inspect(key)).toMatchObject({ holders: 2, used: 2, waiters: 0 });
    expect(frozen.events.some(({ type }) => type === 'unavailable')).toBe(false);
    wire.thaw();
    granted(await standing);
  });

  it("still hold after another client removes a waiter's node or writes to it", async () => {
    const [{ backend, events }, key] = [await direct(), newKey()];
    const held = granted(await backend.acquire(request(key, limited(1))));
    const first = backend.acquire(request(key, limited(1)));
    await untilWaiting({ events }, 1);
    const second = backend.acquire(request(key, limited(1)));
    await untilWaiting({ events }, 2);
    const named = async (sequence: number) =>
      `/lock/${key}/${(await zk.admin.children(`/lock/${key}`)).find((name) => name.endsWith(`0${sequence}`))}`;
    await zk.admin.write(await named(1), 'a note of an operator');
    await zk.admin.remove(await named(1));
    expect(await backend.release(held)).toBe('released');
    // The first waiter is queued again, behind the second.
    const next = granted(await second);
    expect(await backend.release(next)).toBe('released');
    granted(await first);
  });
});
