import { type ProviderEvent, validUntil } from '../../lib/engine/lock-provider.js';
import { FakeClock } from '../../lib/testing/index.js';
import { Locks } from '../../lib/providers/zookeeper/locks.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import { FakeZooKeeper } from './fake-zookeeper.js';
import { contextFor, granted, request } from './seam.js';

const TIMEOUT = 12_000;
const LEASE = (TIMEOUT * 2) / 3;

describe('A session of ZooKeeper', () => {
  let clock: FakeClock;
  let server: FakeZooKeeper;
  let locks: Locks;
  let events: ProviderEvent[];

  beforeEach(async () => {
    clock = new FakeClock();
    server = new FakeZooKeeper();
    events = [];
    const settings = readOptions({ connectString: 'nowhere', sessionTimeout: TIMEOUT });
    locks = new Locks(contextFor(events, { clock }), settings, server.connect);
    const connected = locks.connect();
    await clock.advance(0);
    await connected;
  });

  afterEach(async () => {
    const closed = locks.close();
    await clock.advance(TIMEOUT);
    await closed;
    expect(clock.pendingTimers).toBe(0);
    expect(server.client.isAbandoned).toBe(true);
  });

  const typesOf = () => events.map(({ type }) => type);
  const settled = async <T>(work: Promise<T>): Promise<T> => {
    await clock.advance(0);
    return work;
  };

  it('is believed for two thirds of its time-out after the last acknowledged write was sent', async () => {
    await clock.advance(1_000);
    const grant = granted(await locks.acquire(request('order')));
    expect(grant).toMatchObject({ lease: LEASE, validUntil: validUntil(1_000, LEASE) });
    await clock.advance(500);
    const [outcome] = await settled(locks.renew([{ grant, lease: LEASE }]));
    expect(outcome).toEqual({ validUntil: validUntil(1_500, LEASE) });
  });

  it('is not prolonged by reads: a follower without a leader answers them', async () => {
    const grant = granted(await locks.acquire(request('order')));
    server.client.silentFor = /^touch/;
    const renewal = locks.renew([{ grant, lease: LEASE }]);
    await clock.advance(TIMEOUT / 6);
    expect(await locks.inspect('order')).toMatchObject({ state: 'held' });
    expect(granted(await locks.acquire(request('order', grant))).validUntil).toBe(grant.validUntil);
    // Silence on the write is silence of the session: the connection is given up, and the outcome unknown.
    await clock.advance(TIMEOUT / 3);
    expect(server.client.reconnects).toBeGreaterThan(0);
    server.client.silentFor = undefined;
    server.client.break();
    expect(await renewal).toEqual(['unknown']);
  });

  it('shares one heartbeat among all who ask at the same time, and sends no more than a hundred in its time-out', async () => {
    const grants = [];
    for (let index = 0; index < 20; index += 1) grants.push(granted(await locks.acquire(request(`key ${index}`))));
    const beats = () => server.requests.filter((each) => each.startsWith('touch')).length;
    await settled(Promise.all(grants.map((grant) => locks.renew([{ grant, lease: LEASE }]))));
    expect(beats()).toBe(1);
    for (let round = 0; round < 60; round += 1) {
      void locks.renew([{ grant: grants[0]!, lease: LEASE }]);
      await clock.advance(10);
    }
    expect(beats()).toBeLessThanOrEqual(7);
  });

  it('notices a half-open connection within two thirds of its time-out, idle as it is', async () => {
    await clock.advance(TIMEOUT * 3);
    server.client.wire = 'silent';
    await clock.advance((TIMEOUT * 2) / 3);
    expect(server.client.reconnects).toBeGreaterThan(0);
    server.client.listener.onDisconnected();
    expect(typesOf()).toEqual(['unavailable']);
    server.client.wire = 'open';
    server.client.listener.onConnected();
    expect(typesOf()).toEqual(['unavailable', 'recovered']);
  });

  it('gives up a connection that is not greeted in a third of its time-out', async () => {
    server.client.listener.onDisconnected();
    const { reconnects } = server.client;
    await clock.advance(TIMEOUT / 3);
    expect(server.client.reconnects).toBe(reconnects + 1);
    server.client.listener.onConnected();
  });

  it('does not take a blocked event loop for a silent server', async () => {
    const grant = granted(await locks.acquire(request('order')));
    server.client.wire = 'silent';
    void locks.renew([{ grant, lease: LEASE }]);
    await clock.advance(0);
    clock.block(TIMEOUT / 2);
    await clock.advance(1);
    expect(server.client.reconnects).toBe(0);
  });

  it('writes while somebody waits, so that a grant is fresh; an idle one only reads', async () => {
    await clock.advance(TIMEOUT * 2);
    expect(server.requests.some((each) => each.startsWith('touch'))).toBe(false);
    expect(server.requests.some((each) => each.startsWith('stat'))).toBe(true);
    const first = granted(await locks.acquire(request('order')));
    const second = locks.acquire(request('order'));
    await clock.advance(TIMEOUT * 2);
    await settled(locks.release(first));
    const grant = granted(await second);
    expect(grant.validUntil - clock.now()).toBeGreaterThan(LEASE / 3);
  });

  it('that has expired loses all its holds before a new one is begun, in which waiters stand again', async () => {
    const held = granted(await locks.acquire(request('held')));
    const other = granted(await locks.acquire(request('order')));
    const waiter = locks.acquire(request('order'));
    await clock.advance(0);
    const [old] = server.clients;
    old!.listener.onDisconnected();
    server.endSession(old!.sessionId);
    server.onRequest = () => {
      expect(typesOf().filter((type) => type === 'lost')).toHaveLength(2);
    };
    old!.listener.onExpired();
    expect(old!.isAbandoned).toBe(true);
    await clock.advance(0);
    expect(granted(await waiter).fencingToken).toBeGreaterThan(other.fencingToken!);
    expect(events).toContainEqual(expect.objectContaining({ type: 'lost', holder: held.holder }));
    expect(await settled(locks.renew([{ grant: held, lease: LEASE }]))).toEqual(['lost']);
    expect(await locks.release(held)).toBe('lost');
    expect(typesOf().slice(-1)).toEqual(['recovered']);
  });

  it('makes its own node again when somebody tidied it up', async () => {
    const grant = granted(await locks.acquire(request('order')));
    server.nodes.delete('/lock/%sessions/0000000000000001');
    const [outcome] = await settled(locks.renew([{ grant, lease: LEASE }]));
    expect(outcome).toEqual({ validUntil: expect.any(Number) as number });
    expect(server.nodes.has('/lock/%sessions/0000000000000001')).toBe(true);
  });
});
