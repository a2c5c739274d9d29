import { getEventListeners } from 'node:events';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockLockProvider, type RedlockLockProviderOptions } from '../../lib/providers/redlock/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { direct } from '../direct-backend.js';
import { contextFor, granted, RELEASE, request, until } from '../redis/seam.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { freePort } from '../servers/server-process.mjs';
import { type Quorum, startQuorum, startRedlock, wiresTo } from './quorum.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';
import { ArmedTimers } from '../../lib/provider-kit/armed-timers.js';

describe('RedlockLockProvider', () => {
  let quorum: Quorum;
  let provider: RedlockLockProvider;
  beforeAll(async () => {
    quorum = await startQuorum(3);
    provider = new RedlockLockProvider({ nodes: quorum.nodes, maxLease: '10m', commandTimeout: '10s' });
  });
  afterAll(() => quorum.stop());

  it("a release wakes all of this process's requests for the key, in order: the core sends one per nesting depth", async () => {
    // The clock stands still, so only a release ends a pause.
    const { backend, events } = await startRedlock(quorum, { clock: new FakeClock() });
    const first = granted(await backend.acquire(request('waited for')));
    const waiting = [request('waited for'), request('waited for', { otherKeysHeld: 1 })].map((ask) =>
      backend.acquire(ask),
    );
    await until(() => events.length === waiting.length, 'both requests pause');
    const order: number[] = [];
    const done = waiting.map(async (answer, index) => {
      const grant = granted(await answer);
      order.push(index);
      await backend.release(grant, RELEASE);
    });
    await backend.release(first, RELEASE);
    await Promise.race(done);
    // Both votes travel in one call, in order.
    expect(order).toEqual([0]);
    await Promise.all(done);
    expect(order).toEqual([0, 1]);
  });

  it('opens nothing before connect(): an attempt is unavailable and unsent, and there is nothing to close', async () => {
    const backend = direct(provider.createBackend(contextFor([])));
    const asked = backend.acquire(request('order', { wait: 0, lease: 500 }));
    await expect(asked).rejects.toBeInstanceOf(LockUnavailableError);
    await expect(asked).rejects.toMatchObject({ sent: false });
    await backend.close();
  });
});

const NODES = ['a', 'b', 'c'].map((host) => ({ url: `redis://${host}` }));

const GOOD: RedlockLockProviderOptions = { nodes: NODES, maxLease: '30s' };

describe('the options of RedlockLockProvider', () => {
  it.each<[string, unknown]>([
    ['"nodes" is undefined: set the variable', { ...GOOD, nodes: undefined }],
    ['at least three independent', { ...GOOD, nodes: 'redis://a,redis://b,redis://c' }],
    ['at least three independent', { ...GOOD, nodes: [] }],
    ['at least three independent', { ...GOOD, nodes: NODES.slice(1) }],
    ['node 2', { ...GOOD, nodes: [NODES[0], undefined, NODES[2]] }],
    ['node 2', { ...GOOD, nodes: [NODES[0], {}, NODES[2]] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], 'redis://c'] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], { client: null }] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], { options: 'c' }] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], { url: 'redis://c', options: { host: 'c' } }] }],
    ['maxLease', { ...GOOD, maxLease: Number.NaN }],
    ['maxLease', { ...GOOD, maxLease: Infinity }],
    ['maxLease', { ...GOOD, maxLease: -1 }],
    ['maxLease', { ...GOOD, maxLease: 99 }],
    ['maxLease', { ...GOOD, maxLease: 'soon' }],
    [
      `RedlockLockProvider: "maxLease" is '25d', but must be a duration of 100 ms to 24.8 days`,
      { ...GOOD, maxLease: '25d' },
    ],
    ['commandTimeout', { ...GOOD, commandTimeout: 49 }],
    ['commandTimeout', { ...GOOD, commandTimeout: Infinity }],
  ])('are rejected for %s: %j', (message, options) => {
    const make = () => new RedlockLockProvider(options as RedlockLockProviderOptions);
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(message);
  });
});

describe('a Redis Cluster node among the nodes', () => {
  let servers: readonly RedisServer[];
  beforeAll(async () => {
    // By default the bus uses the port + 10 000, which an outgoing connection may have.
    const bus = String(await freePort());
    const clustered = startRedisServer({ args: ['--cluster-enabled', 'yes', '--cluster-port', bus] });
    servers = await Promise.all([startRedisServer(), startRedisServer(), clustered]);
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  it('is rejected at startup, with its number', async () => {
    const starting = startRedlock({ nodes: servers.map(({ url }) => ({ url })) });
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow('node 3 belongs to a Redis Cluster');
  });
});

describe('resources left behind', () => {
  let quorum: Quorum;
  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(() => quorum.flush());
  afterAll(() => quorum.stop());

  const connections = async () => {
    const lists = await Promise.all(quorum.admins.map((admin) => admin.call('CLIENT', ['LIST'])));
    return lists.map((list) => String(list).trim().split('\n').length);
  };

  it('a closed backend leaves no connection, no timer, and no caller that waits forever, even with a hung node', async () => {
    const before = await connections();
    const clock = new ArmedTimers(systemClock);
    const { backend } = await startRedlock({ ...quorum, commandTimeout: '1s' }, { clock });
    granted(await backend.acquire(request('k')));
    const waiter = backend.acquire(request('k'));
    quorum.servers[2]!.signal('SIGSTOP');
    const asked = backend.acquire(request('other', { wait: 0 })).catch(() => 'busy');
    const stopped = backend.close();
    expect(await waiter.catch(() => 'busy')).toBe('busy');
    await asked;
    await stopped;
    quorum.servers[2]!.signal('SIGCONT');
    await until(async () => (await connections()).join() === before.join(), 'the connections are closed');
    await until(() => clock.count === 0, 'no timer is set');
    await expect(backend.acquire(request('k', { wait: 0 }))).rejects.toThrow();
  });

  it('a backend closed while a node denies the script leaves no timer', async () => {
    const [admin] = quorum.admins;
    await admin!.call('ACL', ['SETUSER', 'default', '-eval']);
    try {
      const clock = new ArmedTimers(systemClock);
      const { backend } = await startRedlock(quorum, { clock });
      // Startup has waited for all three nodes, so the denying node is due for identification in a second.
      await backend.close();
      expect(clock.count).toBe(0);
    } finally {
      await admin!.call('ACL', ['SETUSER', 'default', '+eval']);
    }
  });

  it('a request that finds the lock busy before each of several outages adds one abort listener', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const clock = new FakeClock();
    const { backend, events } = await startRedlock({ nodes }, { clock });
    granted(await backend.acquire(request('k')));
    const again = request('k');
    for (let outage = 1; outage <= 3; outage += 1) {
      const failed = expect(backend.acquire(again)).rejects.toBeInstanceOf(LockUnavailableError);
      await until(() => events.filter(({ type }) => type === 'waiting').length === outage, 'the lock was busy');
      for (const wire of wires) wire.freeze();
      // Longer than the pause and a tenth of the lease.
      await clock.advance(4_000);
      await failed;
      for (const wire of wires) wire.thaw();
    }
    expect(getEventListeners(again.signal, 'abort')).toHaveLength(1);
    await backend.close();
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('a backend closed while it connects leaves no connection', async () => {
    const before = await connections();
    const backend = new RedlockLockProvider({ nodes: quorum.nodes, maxLease: '10m' }).createBackend(contextFor([]));
    const connected = backend.connect();
    await Promise.all([backend.close(), expect(connected).rejects.toMatchObject({ sent: false })]);
    expect(await connections()).toEqual(before);
    await expect(backend.acquire(request('k', { wait: 0 }))).rejects.toThrow(LockUnavailableError);
  });
});
