import { LockUnavailableError } from '../../lib/api/errors.js';
import { FakeClock } from '../../lib/testing/index.js';
import type { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { LAST_SEQUENCE } from '../../lib/providers/zookeeper/recipe.js';
import { FakeZooKeeper, startOn } from './fake-zookeeper.js';
import { granted, request, type TestRequest } from './seam.js';
import type { DirectBackend, TestEvent } from '../direct-backend.js';

const TIMEOUT = 12_000;
const FOLDER = '/lock/order';

describe('the node of an attempt', () => {
  let clock: FakeClock;
  let server: FakeZooKeeper;
  let backend: DirectBackend<ZooKeeperBackend>;
  let events: TestEvent[];

  beforeEach(async () => {
    clock = new FakeClock();
    server = new FakeZooKeeper();
    events = [];
    backend = await startOn(server, { clock }, events);
  });

  afterEach(async () => {
    const closed = backend.close();
    await clock.advance(TIMEOUT);
    await closed;
  });

  it('is created and looked up in one round trip', async () => {
    granted(await backend.acquire(request('order')));
    server.requests.length = 0;
    granted(await backend.acquire(request('order', { mode: 'shared', key: 'other' })));
    expect(server.requests.map((each) => each.split(' ')[0])).toEqual(['create', 'create', 'children']);
  });

  it('is not a node with its id that belongs to another session, which may end at another time', async () => {
    server.client.wire = 'deaf';
    const attempt = request('order');
    const lost = backend.acquire(attempt);
    lost.catch(() => undefined);
    await clock.advance(0);
    server.client.break();
    await expect(lost).rejects.toBeInstanceOf(LockUnavailableError);
    const [name] = server.namesIn(FOLDER);
    const path = `${FOLDER}/${name}`;
    server.nodes.set(path, { ...server.nodes.get(path)!, owner: 999n });
    const answer = backend.acquire(attempt);
    await clock.advance(0);
    expect(server.namesIn(FOLDER)).toHaveLength(2);
    server.remove(path);
    granted(await answer);
  });

  describe('created on the leader when the next server has not seen it', () => {
    let attempt: TestRequest;

    beforeEach(async () => {
      granted(await backend.acquire(request('order', { mode: 'shared' })));
      const { client } = server;
      client.silentFor = /__READ__/;
      attempt = request('order', { mode: 'shared', wait: 0 });
      const lost = backend.acquire(attempt).catch((error: unknown) => error);
      await clock.advance(0);
      client.silentFor = undefined;
      client.break();
      expect(await lost).toBeInstanceOf(LockUnavailableError);
      // All writes of a session are in one order, so a server that acknowledges the next write has executed this one.
      server.onRequest = (each) => {
        if (/^(write|create|remove)/.test(each)) for (const arrive of client.late.splice(0)) arrive();
      };
    });

    it('is found instead of created again', async () => {
      granted(await backend.acquire(attempt));
      expect(server.namesIn(FOLDER)).toHaveLength(2);
      expect(await backend.release(attempt)).toBe('released');
    });

    it('is removed by a release, and blocks no other caller', async () => {
      await backend.release(attempt);
      expect(server.namesIn(FOLDER)).toHaveLength(1);
    });
  });

  it('has the same token for all readers that hold together, even if a writer left just as the first one arrived', async () => {
    const writer = granted(await backend.acquire(request('order')));
    server.onRequest = (each) => {
      if (!each.startsWith('children')) return;
      server.onRequest = () => undefined;
      server.remove(`${FOLDER}/${server.namesIn(FOLDER)[0]}`);
    };
    const first = granted(await backend.acquire(request('order', { mode: 'shared' })));
    const second = granted(await backend.acquire(request('order', { mode: 'shared' })));
    expect(first.fencingToken).toBeGreaterThan(writer.fencingToken!);
    expect(second.fencingToken).toBe(first.fencingToken);
    expect((await backend.inspect('order'))?.fencingToken).toBe(first.fencingToken);
  });

  it('is removed in the background if its release got no reply', async () => {
    const grant = granted(await backend.acquire(request('order')));
    server.client.silentFor = /^remove/;
    const release = backend.release(grant);
    await clock.advance(0);
    server.client.silentFor = undefined;
    server.client.break();
    expect(await release).toBe('unknown');
    await clock.advance(TIMEOUT / 6);
    expect(server.namesIn(FOLDER)).toEqual([]);
  });

  it('is removed by a retried release, which returns what the first release would have returned', async () => {
    const grant = granted(await backend.acquire(request('order')));
    server.client.silentFor = /^remove/;
    const release = backend.release(grant);
    await clock.advance(0);
    server.client.silentFor = undefined;
    server.client.break();
    expect(await release).toBe('unknown');
    expect(await backend.release(grant)).toBe('released');
    expect(server.namesIn(FOLDER)).toEqual([]);
    expect(await backend.release(grant)).toBe('lost');
  });

  it('is removed with its watch when its waiter leaves', async () => {
    granted(await backend.acquire(request('order')));
    for (let round = 0; round < 3; round += 1) {
      const waiter = request('order');
      const answer = backend.acquire(waiter);
      await clock.advance(0);
      waiter.abort();
      expect(await answer).toBe('busy');
    }
    await clock.advance(0);
    expect(server.namesIn(FOLDER)).toHaveLength(1);
    expect([...server.watches.values()].map(({ size }) => size)).toEqual([0]);
  });

  it('is checked again if the node before it disappears between the list and the watch', async () => {
    const first = granted(await backend.acquire(request('order')));
    server.onRequest = (each) => {
      if (!each.startsWith('read')) return;
      server.onRequest = () => undefined;
      server.remove(`${FOLDER}/${server.namesIn(FOLDER)[0]}`);
    };
    const second = backend.acquire(request('order'));
    await clock.advance(0);
    expect(granted(await second).fencingToken).toBeGreaterThan(first.fencingToken!);
  });

  it('loses its hold if another client removes it, at the next renewal, or immediately once a renewal has set a watch', async () => {
    const grant = granted(await backend.acquire(request('order')));
    const renewal = backend.renew(grant);
    await clock.advance(0);
    expect(await renewal).toEqual({ validUntil: expect.any(Number) as number });
    const forced = backend.forceRelease('order');
    await clock.advance(TIMEOUT / 100);
    expect(await forced).toBe(true);
    expect(events).toContainEqual(expect.objectContaining({ type: 'lost', holder: grant.holder }));
    expect(await backend.release(grant)).toBe('lost');
  });

  it('is created again if it disappears with its folder between its creation and the list', async () => {
    server.onRequest = (each) => {
      if (each !== `children ${FOLDER}`) return;
      server.onRequest = () => undefined;
      for (const name of server.namesIn(FOLDER)) server.remove(`${FOLDER}/${name}`);
      server.remove(FOLDER);
    };
    granted(await backend.acquire(request('order')));
    expect(server.namesIn(FOLDER)).toHaveLength(1);
  });

  it('is in a new folder when the old one runs out of sequence numbers', async () => {
    const first = granted(await backend.acquire(request('order')));
    await backend.release(first);
    server.nodes.get(FOLDER)!.creations = LAST_SEQUENCE;
    const second = granted(await backend.acquire(request('order')));
    expect(server.namesIn(FOLDER)[0]).toMatch(/__WRIT__0000000000$/);
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken!);
    server.nodes.get(FOLDER)!.creations = LAST_SEQUENCE;
    const refused = backend.acquire(request('order'));
    await expect(refused).rejects.toThrow(/out of sequence numbers/);
    await expect(refused).rejects.toBeInstanceOf(LockUnavailableError);
    expect(server.namesIn(FOLDER)).toHaveLength(1);
  });

  it('leaves a folder that is removed after five idle seconds, and not while it is in use', async () => {
    for (let round = 0; round < 8; round += 1) {
      await backend.release(granted(await backend.acquire(request('order'))));
      await clock.advance(1_000);
    }
    expect(server.nodes.has(FOLDER)).toBe(true);
    await clock.advance(5_000 + TIMEOUT / 6);
    expect(server.nodes.has(FOLDER)).toBe(false);
    // Removed by another client as well, the folder is created again.
    await backend.release(granted(await backend.acquire(request('order'))));
    server.nodes.delete(FOLDER);
    granted(await backend.acquire(request('order')));
  });
});
