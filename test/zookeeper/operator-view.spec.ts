import { jest } from '@jest/globals';
import { CreateMode } from 'node-zookeeper-client';
import type { LockInfo } from '../../lib/api/lock-info.js';
import type { LimitShare } from '../../lib/api/lock-mode.js';
import type { BackendContext } from '../../lib/api/lock-provider.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { systemRandom, withPrefix } from '../../lib/core/toolkit/random.js';
import { segmentOf } from '../../lib/providers/zookeeper/lock-path.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import { FakeClock } from '../../lib/testing/index.js';
import { contextFor } from '../backend-context.js';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { type LaggingServer, LaggingZooKeeper } from './lagging-zookeeper.js';
import { granted, request, until, zooKeeperForTests } from './seam.js';
import { type DirectBackend, direct } from '../direct-backend.js';

jest.setTimeout(60_000);

describe('the list of locks on a real server', () => {
  const zk = zooKeeperForTests();
  const backends: ZooKeeperBackend[] = [];

  afterEach(() => Promise.all(backends.splice(0).map((backend) => backend.close())));

  let instances = 0;
  async function start(
    namespace: string,
    context: Partial<BackendContext> = {},
    options = {},
  ): Promise<DirectBackend<ZooKeeperBackend>> {
    instances += 1;
    const instance = { id: String(instances).padStart(12, 'a'), name: `web-${instances}` };
    const random = withPrefix(systemRandom(), instance.id);
    const { connectString } = zk.server;
    const provider = new ZooKeeperLockProvider({ connectString, sessionTimeout: 30_000, ...options });
    const backend = direct(
      provider.createBackend(contextFor([], { namespace, instance, random, ...context })) as ZooKeeperBackend,
    );
    backends.push(backend);
    await backend.connect();
    return backend;
  }
  const take = async (
    backend: DirectBackend<ZooKeeperBackend>,
    key: string,
    mode: 'exclusive' | 'shared' = 'exclusive',
  ) => granted(await backend.acquire(request(key, { mode })));
  const limit = async (backend: DirectBackend<ZooKeeperBackend>, key: string, limited: LimitShare) =>
    granted(await backend.acquire(request(key, { mode: 'limited', limited })));
  async function listOf(backend: DirectBackend<ZooKeeperBackend>, prefix = ''): Promise<LockInfo[]> {
    const locks: LockInfo[] = [];
    for await (const lock of backend.list({ prefix })) locks.push(lock);
    return locks.sort((one, other) => (one.key < other.key ? -1 : 1));
  }
  const keysOf = async (backend: DirectBackend<ZooKeeperBackend>, prefix?: string) =>
    (await listOf(backend, prefix)).map(({ key }) => key);

  it('counts waiters, and reports neither when a lock ends nor since when it is held', async () => {
    const backend = await start('waiters');
    await take(backend, 'exclusive');
    await take(backend, 'shared', 'shared');
    const waiting = [request('exclusive'), request('exclusive'), request('shared')];
    const answers = waiting.map((waiter) => backend.acquire(waiter));
    await until(async () => (await backend.inspect('exclusive'))?.waiters === 2, 'two wait for one key');
    await until(async () => (await backend.inspect('shared'))?.waiters === 1, 'one waits for the other key');
    expect(await listOf(backend)).toMatchObject([
      { key: 'exclusive', waiters: 2, expiresIn: null, since: null },
      { key: 'shared', waiters: 1, expiresIn: null, since: null },
    ]);
    for (const waiter of waiting) waiter.abort();
    await Promise.all(answers);
  });

  it('shows keys that are stored as a hash as they were passed, and filters them by prefix', async () => {
    const backend = await start('hashes');
    const long = `order:${'x'.repeat(301)}`;
    const lone = 'order:\ud800';
    for (const key of [long, lone, 'order:1']) await take(backend, key);
    expect(await keysOf(backend)).toEqual(['order:1', long, lone].toSorted());
    expect(await keysOf(backend, 'order:x')).toEqual([long]);
    expect(await keysOf(backend, '\ud800')).toEqual([]);
    expect(await keysOf(backend, '%sha256')).toEqual([]);
    for (const key of await keysOf(backend)) expect(await backend.forceRelease(key)).toBe(true);
    expect(await keysOf(backend)).toEqual([]);
    // If a folder disappears while this process assumes that it exists, it is created again with its content.
    await zk.admin.remove(`/hashes/${segmentOf(long)}`);
    await take(backend, long);
    expect(await keysOf(backend, 'order:')).toEqual([long]);
  });

  it('shows the hash of a key if its folder comes from an older version or another client', async () => {
    const backend = await start('old-hashes');
    await backend.release(await take(backend, 'makes the namespace'));
    const contents = [undefined, '0123456789ab web-1', '"another key"', '42'];
    const keys = contents.map((_, index) => String(index).repeat(300));
    for (const [index, key] of keys.entries()) {
      const folder = await zk.admin.create(`/old-hashes/${segmentOf(key)}`);
      const content = contents[index];
      if (content !== undefined) await zk.admin.write(folder, content);
      await take(backend, key);
    }
    const segments = keys.map(segmentOf).toSorted();
    expect(await keysOf(backend)).toEqual(segments);
    expect(await keysOf(backend, '%sha256-')).toEqual(segments);
    expect(await keysOf(backend, '0')).toEqual([]);
  });

  it('shows locks of clients in other languages, by the digits of their ids', async () => {
    const backend = await start('foreign');
    await backend.release(await take(backend, 'curator'));
    await backend.release(await take(backend, 'kazoo'));
    const id = 'fedcba98-7654-4321-8000-111111111111';
    const sequential = CreateMode.EPHEMERAL_SEQUENTIAL;
    await zk.admin.create(`/foreign/curator/_c_${id}-__WRIT__`, sequential);
    await zk.admin.create(`/foreign/kazoo/0123456789abcdef0123456789abcdef__READ__`, sequential);
    const waiter = request('curator');
    const answer = backend.acquire(waiter);
    await until(async () => (await backend.inspect('curator'))?.waiters === 1, 'our attempt waits behind it');
    expect(await listOf(backend)).toEqual([
      expect.objectContaining({ key: 'curator', mode: 'exclusive', waiters: 1, instances: ['fedcba987654'] }),
      expect.objectContaining({ key: 'kazoo', mode: 'shared', waiters: 0, instances: ['0123456789ab'] }),
    ]);
    waiter.abort();
    await answer;
  });

  it('names the instances of up to a hundred holders', async () => {
    const backend = await start('many');
    const random = systemRandom();
    await backend.release(await take(backend, 'page'));
    for (let reader = 0; reader < 130; reader += 1) {
      const id = random.id().replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
      await zk.admin.create(`/many/page/_c_${id}-__READ__`, CreateMode.EPHEMERAL_SEQUENTIAL);
    }
    const [page] = await listOf(backend);
    expect(page).toMatchObject({ holders: 130, mode: 'shared' });
    expect(page?.instances).toHaveLength(100);
  });

  it('reads no further than its consumer', async () => {
    const backend = await start('ahead');
    for (let index = 0; index < 200; index += 1) await take(backend, `key:${index}`);
    const received = async () => Number(/zk_packets_received\t(\d+)/.exec(await zk.server.ask('mntr'))![1]);
    const before = await received();
    for await (const lock of backend.list({ prefix: '' })) {
      expect(lock.state).toBe('held');
      break;
    }
    // Three reads for each of the first 32 keys.
    expect((await received()) - before).toBeLessThan(150);
  });

  it('needs only the permissions that locks need, and so do limits', async () => {
    const acl = [{ scheme: 'world', id: 'anyone', permissions: 'cdrw' }];
    const [one, other] = [await start('least', {}, { acl }), await start('least', {}, { acl })];
    const terms = { limit: 1, weight: 1 };
    const held = await limit(one, 'report', terms);
    const next = limit(other, 'report', terms);
    await until(async () => (await one.inspect('report'))?.waiters === 1, 'the next one waits');
    const last = limit(one, 'report', terms);
    await until(async () => (await one.inspect('report'))?.waiters === 2, 'another one waits');
    await one.release(held);
    await other.release(await next);
    await last;
    expect(await keysOf(other)).toEqual(['report']);
  });

  it("is unavailable if the server does not respond, and refused if a folder can't be read", async () => {
    const wire = await startTcpProxy(zk.server.port);
    const backend = await start('closed', {}, { connectString: `127.0.0.1:${wire.port}` });
    await take(backend, 'open');
    wire.refuse();
    await expect(listOf(backend)).rejects.toBeInstanceOf(LockUnavailableError);
    wire.admit();
    await wire.close();

    const owner = await start('closed', {}, { auth: { credentials: 'owner:secret' } });
    await take(owner, 'hidden');
    const stranger = await start('closed');
    await expect(listOf(stranger)).rejects.toThrow(/Lock "hidden".*refused the request \(.*NO_AUTH/);
    expect(await keysOf(stranger, 'open')).toEqual(['open']);
  });
});

describe('a forced release on a server that lags behind its leader', () => {
  it('removes the current holder, even if the server has not seen it enter', async () => {
    const clock = new FakeClock();
    const ensemble = new LaggingZooKeeper(clock);
    const settings = readOptions({ connectString: 'nowhere', sessionTimeout: 12_000 });
    const backends = [1, 2, 3].map(() =>
      direct(new ZooKeeperBackend(contextFor([], { clock }), settings, ensemble.connect)),
    );
    const [one, other, operator] = backends as [(typeof backends)[0], (typeof backends)[0], (typeof backends)[0]];
    /** Lets these servers respond, and apply the leader's changes once no request is left. */
    const settle = async (servers: readonly LaggingServer[]) => {
      const next = () => servers.flatMap(({ steps }) => steps.at(-1) ?? [])[0];
      await clock.advance(0);
      for (let step = next(); step; step = next()) {
        step();
        await clock.advance(0);
      }
    };
    const connected = Promise.all(backends.map((backend) => backend.connect()));
    await settle(ensemble.servers);
    await connected;
    const held = one.acquire(request('order'));
    await settle(ensemble.servers);

    const entered = other.acquire(request('order'));
    const released = one.release(granted(await held));
    await settle(ensemble.servers.slice(0, 2));
    await released;
    granted(await entered);
    const forced = operator.forceRelease('order');
    await settle(ensemble.servers.slice(2));
    expect(await forced).toBe(true);
    expect(ensemble.namesIn('/lock/order')).toEqual([]);
  });
});
