import { validUntil } from '../../lib/core/toolkit/validity.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { FakeClock } from '../../lib/testing/index.js';
import { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import { ZooKeeperFailure } from '../../lib/providers/zookeeper/zookeeper-failure.js';
import { FakeZooKeeper, startOn } from './fake-zookeeper.js';
import { contextFor } from '../backend-context.js';
import { granted, request } from './seam.js';
import { type DirectBackend, direct, type TestEvent, type TestGrant } from '../direct-backend.js';

const TIMEOUT = 12_000;
const LEASE = (TIMEOUT * 2) / 3;

describe('a ZooKeeper session', () => {
  let clock: FakeClock;
  let server: FakeZooKeeper;
  let backend: DirectBackend<ZooKeeperBackend>;
  let events: TestEvent[];
  let warnings: string[];

  beforeEach(async () => {
    clock = new FakeClock();
    server = new FakeZooKeeper();
    events = [];
    warnings = [];
    const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
    backend = await startOn(server, { clock, logger }, events);
  });

  afterEach(async () => {
    const closed = backend.close();
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

  it('is valid for two thirds of its timeout after the last acknowledged write was sent', async () => {
    await clock.advance(1_000);
    const grant = granted(await backend.acquire(request('order')));
    expect(grant).toMatchObject({ lease: LEASE, validUntil: validUntil(1_000, LEASE) });
    await clock.advance(500);
    const outcome = await settled(backend.renew(grant));
    expect(outcome).toEqual({ validUntil: validUntil(1_500, LEASE) });
  });

  it('is valid for less after the process paused, because the leader may have heard nothing since before the pause', async () => {
    await clock.advance(TIMEOUT);
    const { length } = server.requests;
    await clock.advance(TIMEOUT / 6);
    expect(server.requests.length).toBeGreaterThan(length);
    // The last request was sent at most a sixth of the timeout ago.
    const heardBy = clock.now();
    clock.block(TIMEOUT * 0.6);
    const grant = granted(await backend.acquire(request('order')));
    expect(grant.validUntil).toBeLessThanOrEqual(validUntil(heardBy, TIMEOUT) + TIMEOUT * 0.01);
    expect(grant.validUntil).toBeGreaterThan(clock.now());
    // The follower has reported the session to its leader meanwhile.
    await clock.advance(TIMEOUT / 4);
    const renewal = backend.renew(grant);
    await clock.advance(TIMEOUT / 100);
    expect(await renewal).toEqual({ validUntil: expect.closeTo(validUntil(clock.now(), LEASE), -3) as number });
  });

  it('is valid for less after the machine slept, even if its clock stood still', async () => {
    await clock.advance(TIMEOUT);
    const heardBy = clock.now();
    clock.suspend(TIMEOUT * 0.6);
    const grant = granted(await backend.acquire(request('order')));
    expect(grant.validUntil).toBeLessThanOrEqual(validUntil(heardBy, TIMEOUT * 0.4));
    expect(grant.validUntil).toBeGreaterThan(clock.now());
  });

  it('is valid for less after the machine slept, even if a write was acknowledged just before', async () => {
    await clock.advance(TIMEOUT);
    granted(await backend.acquire(request('earlier')));
    const heardBy = clock.now();
    clock.suspend(TIMEOUT * 0.6);
    const grant = granted(await backend.acquire(request('order')));
    expect(grant.validUntil).toBeLessThanOrEqual(validUntil(heardBy, TIMEOUT * 0.4));
    expect(grant.validUntil).toBeGreaterThan(clock.now());
  });

  it('is valid for less if the machine slept before it read that a server took the session over', async () => {
    await clock.advance(TIMEOUT);
    server.client.leave();
    const heardBy = clock.now();
    clock.suspend(TIMEOUT * 0.6);
    server.client.return();
    const grant = granted(await backend.acquire(request('order')));
    expect(grant.validUntil).toBeLessThanOrEqual(validUntil(heardBy, TIMEOUT * 0.4));
    expect(grant.validUntil).toBeGreaterThan(clock.now());
  });

  it('sends a request every sixth of its timeout, so that the leader hears of it', async () => {
    await clock.advance(TIMEOUT);
    for (let time = 0; time < 6; time += 1) {
      const { length } = server.requests;
      await clock.advance(TIMEOUT / 6);
      expect(server.requests.length).toBeGreaterThan(length);
    }
  });

  it('is not extended by reads, because a follower without a leader answers them', async () => {
    const grant = granted(await backend.acquire(request('order')));
    server.client.silentFor = /^write/;
    const renewal = backend.renew(grant);
    await clock.advance(TIMEOUT / 6);
    expect(await backend.inspect('order')).toMatchObject({ state: 'held' });
    expect(granted(await backend.acquire(grant.request)).validUntil).toBe(grant.validUntil);
    // Silence on the write is silence of the session: the connection is dropped, and the outcome is unknown.
    await clock.advance(TIMEOUT / 3);
    expect(server.client.reconnects).toBeGreaterThan(0);
    server.client.silentFor = undefined;
    server.client.break();
    expect(await renewal).toBe('unknown');
  });

  it('shares one heartbeat among concurrent renewals, and sends at most a hundred per timeout', async () => {
    const grants = [];
    for (let index = 0; index < 20; index += 1) grants.push(granted(await backend.acquire(request(`key ${index}`))));
    const beats = () => server.requests.filter((each) => each.startsWith('write')).length;
    await settled(Promise.all(grants.map((grant) => backend.renew(grant))));
    expect(beats()).toBe(1);
    for (let round = 0; round < 60; round += 1) {
      void backend.renew(grants[0]!);
      await clock.advance(10);
    }
    expect(beats()).toBeLessThanOrEqual(7);
  });

  it('detects a half-open connection within two thirds of its timeout, even when idle', async () => {
    await clock.advance(TIMEOUT * 3);
    server.client.wire = 'silent';
    await clock.advance((TIMEOUT * 2) / 3);
    expect(server.client.reconnects).toBeGreaterThan(0);
    server.client.leave();
    expect(typesOf()).toEqual(['unavailable']);
    server.client.wire = 'open';
    server.client.return();
    expect(typesOf()).toEqual(['unavailable', 'recovered']);
  });

  it('drops a connection without a greeting after 2 s, since another server may be healthy', async () => {
    server.client.leave();
    const { reconnects } = server.client;
    await clock.advance(2_000 + TIMEOUT / 12);
    expect(server.client.reconnects).toBe(reconnects + 1);
    server.client.return();
  });

  it('does not mistake a slow server for a silent one: it still answers, in order', async () => {
    server.client.silentFor = /^children \/lock\/order$/;
    backend.inspect('order').catch(() => undefined);
    for (let time = 0; time < 5; time += 1) {
      await clock.advance(TIMEOUT / 8);
      await settled(backend.inspect('other'));
    }
    expect(server.client.reconnects).toBe(0);
    server.client.wire = 'silent';
    await clock.advance(TIMEOUT / 2);
    expect(server.client.reconnects).toBeGreaterThan(0);
  });

  it('is abandoned after three timeouts without a connection, because servers that have lost their data refuse it permanently', async () => {
    const held = granted(await backend.acquire(request('order')));
    const [old] = server.clients;
    old!.leave();
    await clock.advance(TIMEOUT * 3 - 1_000);
    expect(server.clients).toHaveLength(1);
    server.nodes.clear();
    await clock.advance(2_000);
    expect(server.clients).toHaveLength(2);
    expect(old!.isAbandoned).toBe(true);
    expect(events).toContainEqual(expect.objectContaining({ type: 'lost', holder: held.holder }));
    expect(typesOf().at(-1)).toBe('recovered');
    granted(await settled(backend.acquire(request('order'))));
  });

  it('loses its holds if its credentials are refused, and another session is tried later', async () => {
    const held = granted(await backend.acquire(request('order')));
    const cause = new ZooKeeperFailure('refused', 'not you');
    server.client.session.onRefused(cause);
    expect(events.slice(-2)).toEqual([
      { type: 'unavailable', cause },
      { type: 'lost', holder: held.holder, cause },
    ]);
    await expect(settled(backend.acquire(request('other')))).rejects.toBeInstanceOf(LockUnavailableError);
    server.endSession(server.client.sessionId);
    await clock.advance(5_000);
    expect(server.clients).toHaveLength(2);
    granted(await settled(backend.acquire(request('other'))));
  });

  /** Checks that after each end of a session, the next one opens between half and all of the pause. */
  async function expectPauses(pauses: readonly number[], end: () => void): Promise<void> {
    for (const longest of pauses) {
      const { length } = server.clients;
      end();
      await clock.advance(longest / 2 - 1);
      expect(server.clients).toHaveLength(length);
      // In steps: a session that lives for the rest of a long pause counts as healthy, and the next pause is the first
      // again.
      for (let step = 0; step < 10 && server.clients.length === length; step++) await clock.advance(longest / 20 + 1);
      expect(server.clients).toHaveLength(length + 1);
    }
  }

  it('is retried with pauses that grow from 5 s to 30 s while it is refused', async () => {
    await expectPauses([5_000, 10_000, 20_000, 30_000, 30_000], () => {
      server.client.session.onRefused(new ZooKeeperFailure('refused', 'not you'));
      server.endSession(server.client.sessionId);
    });
    // After a healthy session, the pauses start over.
    await clock.advance(TIMEOUT);
    const { length } = server.clients;
    server.client.session.onRefused(new ZooKeeperFailure('refused', 'not you'));
    await clock.advance(5_000);
    expect(server.clients).toHaveLength(length + 1);
  });

  it('is replaced immediately when it expires, and after growing pauses if it keeps expiring before its timeout', async () => {
    await clock.advance(TIMEOUT);
    const expire = () => {
      server.client.leave();
      server.endSession(server.client.sessionId);
      server.client.session.onExpired();
    };
    expire();
    expect(server.clients).toHaveLength(2);
    await clock.advance(0);
    await expectPauses([250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000], expire);
    await clock.advance(TIMEOUT);
    const { length } = server.clients;
    expire();
    expect(server.clients).toHaveLength(length + 1);
    await clock.advance(0);
  });

  it('passes the reason of a refusal to new and waiting callers, and logs it once', async () => {
    const cause = new ZooKeeperFailure('refused', 'ZooKeeper answered NOT_YOU (-7777).');
    granted(await backend.acquire(request('order')));
    const waiter = backend.acquire(request('order'));
    await clock.advance(0);
    server.client.leave();
    server.client.session.onRefused(cause);
    for (const caller of [waiter, backend.acquire(request('other')), backend.casStore.compareAndSet('a', null, 'b')]) {
      const error: unknown = await caller.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(LockUnavailableError);
      expect((error as Error).message).toContain('ZooKeeper refused the request (ZooKeeper answered NOT_YOU (-7777).)');
    }
    server.endSession(server.client.sessionId);
    await clock.advance(5_000);
    server.client.leave();
    server.client.session.onRefused(cause);
    expect(warnings.filter((line) => line.includes('-7777'))).toHaveLength(1);
    await clock.advance(10_000);
  });

  it('rejects its waiters if it is refused, and the next session queues them anew', async () => {
    await backend.release(granted(await backend.acquire(request('order'))));
    const { path } = server.create('/lock/order/_c_other-__WRIT__', 'ephemeral-sequential', 999n);
    const waiter = request('order');
    const first = backend.acquire(waiter);
    await clock.advance(0);
    server.client.session.onRefused(new ZooKeeperFailure('refused', 'not you'));
    server.endSession(server.client.sessionId);
    await expect(first).rejects.toBeInstanceOf(LockUnavailableError);
    await clock.advance(5_000);
    const second = backend.acquire(waiter);
    await clock.advance(0);
    // Until the backend reports the waiter again, the core counts it as unanswered.
    expect(typesOf()).toEqual(['waiting', 'unavailable', 'recovered', 'waiting']);
    server.remove(path);
    granted(await settled(second));
  });

  it('is abandoned after one timeout without a connection if it could never create its node', async () => {
    server.onRequest = (each) => {
      if (each.startsWith('create')) throw new ZooKeeperFailure('refused', 'ZooKeeper answered NO_AUTH (-102).');
    };
    server.endSession(server.client.sessionId);
    server.client.session.onExpired();
    await clock.advance(0);
    const [, unused] = server.clients;
    unused!.leave();
    // The servers are set up again, and silently refuse a session that has seen more than they have.
    server.nodes.clear();
    server.onRequest = () => undefined;
    await clock.advance(TIMEOUT + 1_000);
    expect(unused!.isAbandoned).toBe(true);
    expect(server.clients).toHaveLength(3);
    granted(await settled(backend.acquire(request('order'))));
  });

  it('retries a refused node less and less often, and keeps sending requests', async () => {
    let isRefusing = true;
    server.onRequest = (each) => {
      if (isRefusing && each.startsWith('create')) throw new ZooKeeperFailure('refused', 'not you');
    };
    server.endSession(server.client.sessionId);
    server.client.session.onExpired();
    await clock.advance(0);
    const asked = () => server.requests.filter((each) => each.startsWith('create /lock/%sessions/')).length;
    const before = asked();
    for (let sixth = 0; sixth < 30; sixth += 1) {
      const { length } = server.requests;
      await clock.advance(TIMEOUT / 6);
      expect(server.requests.length).toBeGreaterThan(length);
    }
    // In 60 s: after 1, 2 and 4 s, then every 5 s, as often as it checks.
    expect(asked() - before).toBeGreaterThanOrEqual(10);
    expect(asked() - before).toBeLessThanOrEqual(15);
    isRefusing = false;
    await clock.advance(6_000);
    granted(await settled(backend.acquire(request('order'))));
  });

  it('leaves its waiters unanswered until it has its own node, even while servers respond with refusals', async () => {
    granted(await backend.acquire(request('order')));
    const waiter = request('order');
    const answer = backend.acquire(waiter);
    await clock.advance(TIMEOUT);
    expect(backend.unansweredFor()).toBe(0);
    server.onRequest = (each) => {
      if (each.startsWith('create')) throw new ZooKeeperFailure('refused', 'not you');
    };
    server.client.leave();
    server.endSession(server.client.sessionId);
    server.client.session.onExpired();
    for (let time = 0; time < TIMEOUT; time += 500) {
      await clock.advance(500);
      expect(backend.unansweredFor()).toBeGreaterThanOrEqual(time);
    }
    server.onRequest = () => undefined;
    await clock.advance(6_000);
    granted(await answer);
    expect(backend.unansweredFor()).toBe(0);
  });

  it('renews any number of holds with one heartbeat, and checks their nodes a hundred at a time', async () => {
    const grants: TestGrant[] = [];
    for (let index = 0; index < 300; index += 1) grants.push(granted(await backend.acquire(request(`k${index}`))));
    const looks = () => server.requests.filter((each) => each.startsWith('read')).length;
    server.client.silentFor = /^read/;
    const renewAll = () => Promise.all(grants.map((grant) => backend.renew(grant)));
    const outcomes = renewAll();
    await clock.advance(0);
    expect(looks()).toBe(100);
    server.client.silentFor = undefined;
    server.client.break();
    const first = await outcomes;
    // Holds that were not checked are as safe as the session.
    expect(first.filter((outcome) => outcome === 'unknown')).toEqual([]);
    const again = renewAll();
    await clock.advance(TIMEOUT / 100);
    await again;
    expect(server.watches.size).toBe(300);
    const last = grants.at(-1)!;
    server.remove(`/lock/k299/${server.namesIn('/lock/k299')[0]}`);
    await clock.advance(0);
    expect(events).toContainEqual(expect.objectContaining({ type: 'lost', holder: last.holder }));
  });

  it('passes the folders of its holds on when it expires: the next session removes them', async () => {
    const held = granted(await backend.acquire(request('order')));
    await clock.advance(TIMEOUT);
    const [old] = server.clients;
    old!.leave();
    server.endSession(old!.sessionId);
    old!.session.onExpired();
    expect(await backend.release(held)).toBe('lost');
    expect(server.nodes.has('/lock/order')).toBe(true);
    await clock.advance(TIMEOUT);
    expect(server.nodes.has('/lock/order')).toBe(false);
  });

  it('does not mistake a blocked event loop for a silent server', async () => {
    const grant = granted(await backend.acquire(request('order')));
    server.client.wire = 'silent';
    void backend.renew(grant);
    await clock.advance(0);
    clock.block(TIMEOUT / 2);
    await clock.advance(1);
    expect(server.client.reconnects).toBe(0);
  });

  it('writes while a caller waits, so that a grant is fresh, and only reads when idle', async () => {
    await clock.advance(TIMEOUT * 2);
    expect(server.requests.some((each) => each.startsWith('write'))).toBe(false);
    expect(server.requests.some((each) => each.startsWith('stat'))).toBe(true);
    const first = granted(await backend.acquire(request('order')));
    const second = backend.acquire(request('order'));
    await clock.advance(TIMEOUT * 2);
    await settled(backend.release(first));
    const grant = granted(await second);
    expect(grant.validUntil - clock.now()).toBeGreaterThan(LEASE / 3);
  });

  it('loses all its holds when it expires, before a new session starts in which waiters queue again', async () => {
    const held = granted(await backend.acquire(request('held')));
    const other = granted(await backend.acquire(request('order')));
    const waiter = backend.acquire(request('order'));
    await clock.advance(0);
    const [old] = server.clients;
    old!.leave();
    server.endSession(old!.sessionId);
    server.onRequest = () => {
      expect(typesOf().filter((type) => type === 'lost')).toHaveLength(2);
    };
    old!.session.onExpired();
    expect(old!.isAbandoned).toBe(true);
    await clock.advance(0);
    expect(granted(await waiter).fencingToken).toBeGreaterThan(other.fencingToken!);
    expect(events).toContainEqual(expect.objectContaining({ type: 'lost', holder: held.holder }));
    expect(await settled(backend.renew(held))).toBe('lost');
    expect(await backend.release(held)).toBe('lost');
    expect(typesOf().slice(-1)).toEqual(['recovered']);
  });

  it('loses its holds, but no position in a queue, if a reconnect shortens its timeout', async () => {
    const held = granted(await backend.acquire(request('order')));
    const waiter = backend.acquire(request('order'));
    await clock.advance(0);
    server.client.break();
    expect(typesOf()).toEqual(['waiting', 'unavailable', 'recovered']);
    server.client.leave();
    server.client.sessionTimeout = TIMEOUT / 3;
    server.client.return();
    // The hold counts on a longer timeout than the leader does now.
    expect(typesOf().slice(3)).toEqual(['unavailable', 'lost', 'recovered']);
    const cause: unknown = expect.objectContaining({ message: expect.stringContaining('maxSessionTimeout') as string });
    expect(events.at(-2)).toEqual({ type: 'lost', holder: held.holder, cause });
    await settled(backend.release(held));
    expect(granted(await settled(waiter)).validUntil).toBeLessThan(clock.now() + LEASE / 3);
    expect(server.clients).toHaveLength(1);
  });

  it('fails to connect immediately if it is closed meanwhile, and leaves no timer', async () => {
    const timers = clock.pendingTimers;
    const settings = readOptions({ connectString: 'nowhere', sessionTimeout: TIMEOUT });
    const stopped = direct(
      new ZooKeeperBackend(contextFor(events, { clock }), settings, server.connect(clock)),
      events,
    );
    const start = stopped.connect();
    await Promise.all([expect(start).rejects.toThrow(/cannot reach ZooKeeper/), stopped.close()]);
    await clock.advance(0);
    expect(clock.pendingTimers).toBe(timers);
  });

  it('creates its own node again if another client removed it', async () => {
    const grant = granted(await backend.acquire(request('order')));
    server.nodes.delete('/lock/%sessions/0000000000000001');
    const outcome = await settled(backend.renew(grant));
    expect(outcome).toEqual({ validUntil: expect.any(Number) as number });
    expect(server.nodes.has('/lock/%sessions/0000000000000001')).toBe(true);
  });
});
