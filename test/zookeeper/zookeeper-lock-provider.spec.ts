import { jest } from '@jest/globals';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { inspect } from 'node:util';
import { CreateMode } from 'node-zookeeper-client';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { PendingRemovals } from '../../lib/providers/zookeeper/pending-removals.js';
import { SocketClient } from '../../lib/providers/zookeeper/socket-client.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import {
  granted,
  request,
  startBackend,
  type StartedBackend,
  type TestRequest,
  until,
  untilWaiting,
  zooKeeperForTests,
} from './seam.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';
import { type TestGrant } from '../direct-backend.js';

/** A busy machine delays a process or a server for less. */
const SESSION = 30_000;
/** For tests that wait until a session ends or detects silence. */
const SHORT_SESSION = 4_000;
jest.setTimeout(60_000);
describe('ZooKeeperLockProvider on a real server', () => {
  const zk = zooKeeperForTests();
  let wire: TcpProxy;

  beforeEach(async () => {
    wire = await startTcpProxy(zk.server.port);
  });
  afterEach(() => wire.close());

  let keys = 0;
  const newKey = () => `key:${(keys += 1)}`;
  const folderOf = (key: string) => `/lock/${key}`;
  const connect = () => startBackend({ connectString: zk.server.connectString, sessionTimeout: SESSION });
  const wired = (sessionTimeout = SESSION) => startBackend({ connectString: `127.0.0.1:${wire.port}`, sessionTimeout });
  const has = ({ events }: StartedBackend, wanted: string) => events.some(({ type }) => type === wanted);
  const czxidOf = async (path: string) => (await zk.admin.stat(path))!.czxid.readBigInt64BE();

  it('does not fail a call with wait: 0 because its connection just ended', async () => {
    const provider = new ZooKeeperLockProvider({ connectString: `127.0.0.1:${wire.port}`, sessionTimeout: SESSION });
    const locks = new LockManager({ providers: { zookeeper: provider } });
    await locks.start();
    let isLost = false;
    locks.events.on('unavailable', () => (isLost = true));
    wire.cut();
    await until(() => isLost, 'the loss is detected');
    const lock = await locks.tryAcquire(newKey());
    expect(lock?.isHeld()).toBe(true);
    await lock?.release();
    await locks.stop();
  });

  it('uses the zxid of its node as the token, both alone and in the middle of a queue', async () => {
    const { backend, events } = await connect();
    const key = newKey();
    const nodeOf = async (sequence: number) =>
      `${folderOf(key)}/${(await zk.admin.children(folderOf(key))).find((name) => name.endsWith(`0${sequence}`))}`;
    const alone = granted(await backend.acquire(request(key)));
    expect(alone.fencingToken).toBe(await czxidOf(await nodeOf(0)));
    const behind = backend.acquire(request(key));
    const last = backend.acquire(request(key));
    await untilWaiting({ events }, 2);
    const czxid = await czxidOf(await nodeOf(1));
    await backend.release(alone);
    const second = granted(await behind);
    expect(second.fencingToken).toBe(czxid);
    await backend.release(second);
    granted(await last);
  });

  it('issues growing tokens even if the folder was removed and its sequence numbers restart (Z7)', async () => {
    const { backend } = await connect();
    const key = newKey();
    const first = granted(await backend.acquire(request(key)));
    await backend.release(first);
    await zk.admin.remove(folderOf(key));
    const second = granted(await backend.acquire(request(key)));
    expect(await zk.admin.children(folderOf(key))).toEqual([expect.stringMatching(/__WRIT__0000000000$/)]);
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken!);
  });

  it('issues growing tokens even if a Curator 5.5 writer takes its read lock after other readers have queued', async () => {
    const { backend, events } = await connect();
    const key = newKey();
    await backend.release(granted(await backend.acquire(request(key))));
    const id = (digit: string) => `_c_${digit.repeat(8)}-1111-1111-1111-111111111111`;
    const writer = await zk.admin.create(`${folderOf(key)}/${id('1')}-__WRIT__`, CreateMode.EPHEMERAL_SEQUENTIAL);
    const reading = backend.acquire(request(key, { mode: 'shared' }));
    await untilWaiting({ events }, 1);
    const writing = backend.acquire(request(key));
    await untilWaiting({ events }, 2);
    // CURATOR-621: under the number of its write lock, which it then releases.
    const reader = await zk.admin.create(
      `${folderOf(key)}/${id('2')}-__READ__${writer.slice(-10)}`,
      CreateMode.EPHEMERAL,
    );
    await zk.admin.remove(writer);
    const shared = granted(await reading);
    await zk.admin.remove(reader);
    await backend.release(shared);
    expect(granted(await writing).fencingToken).toBeGreaterThan(shared.fencingToken!);
  });

  it('starts even if one of its servers hangs', async () => {
    // It accepts connections and never responds, like a machine that is out of memory.
    const hanging = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
    await once(hanging, 'listening');
    const { port } = hanging.address() as AddressInfo;
    // The library chooses which of the two servers it tries first.
    const starts = Array.from({ length: 6 }, () =>
      startBackend({ connectString: `127.0.0.1:${port},${zk.server.connectString}`, sessionTimeout: '20s' }),
    );
    for (const { backend } of await Promise.all(starts)) await backend.close();
    hanging.close();
  }, 60_000);

  it('fails to connect immediately if no server accepts its credentials, and reports the reason', async () => {
    const start = startBackend({
      connectString: zk.server.connectString,
      auth: { scheme: 'unheard-of', credentials: 'secret' },
    });
    const error: unknown = await start.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(error).toMatchObject({ cause: { message: expect.stringMatching(/AUTH_FAILED.*"auth"/) as string } });
    expect(inspect(error)).not.toContain('secret');
  });

  it("reports why its path can't be created", async () => {
    await zk.admin.create('/shop');
    await zk.admin.allow('/shop', 'r');
    const start = startBackend({
      connectString: `${zk.server.connectString}/shop/locks`,
      sessionTimeout: SHORT_SESSION,
    });
    await expect(start).rejects.toMatchObject({ cause: { message: expect.stringMatching(/NO_AUTH/) as string } });
  });

  it('wakes one of 200 waiters on a release', async () => {
    const holder = await connect();
    const waiters = await connect();
    const key = newKey();
    const held = granted(await holder.backend.acquire(request(key)));
    const places = Array.from({ length: 200 }, () => waiters.backend.acquire(request(key)));
    await untilWaiting(waiters, 200);
    const received = async () => Number(/zk_packets_received\t(\d+)/.exec(await zk.server.ask('mntr'))![1]);
    const before = await received();
    await holder.backend.release(held);
    const next = granted(await Promise.race(places));
    // The release, the check of the next waiter, heartbeats every few seconds and the test's own requests: far from
    // 200.
    expect((await received()) - before).toBeLessThan(100);
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken!);
    await waiters.backend.close();
  });

  it('finds a node whose creation got no reply, and creates no second one (Z3)', async () => {
    const { backend } = await wired();
    const key = newKey();
    granted(await backend.acquire(request(`${key}:warm`)));
    wire.loseReplies();
    const attempt = request(key);
    const lost = backend.acquire(attempt);
    lost.catch(() => undefined);
    await until(async () => (await zk.admin.children(folderOf(key))).length === 1, 'the node exists');
    wire.passReplies();
    wire.cut();
    await expect(lost).rejects.toBeInstanceOf(LockUnavailableError);
    let grant: TestGrant | 'busy' = 'busy';
    await until(async () => {
      grant = await backend.acquire(attempt).catch(() => 'busy' as const);
      return grant !== 'busy';
    }, 'it is connected again');
    const [name] = await zk.admin.children(folderOf(key));
    expect(await zk.admin.children(folderOf(key))).toHaveLength(1);
    expect(granted(grant).fencingToken).toBe(await czxidOf(`${folderOf(key)}/${name}`));
  });

  it('loses its holds with the session, and is queued again in the next one (Z4)', async () => {
    const cutOff = await wired(SHORT_SESSION);
    const other = await connect();
    const [key, busy] = [newKey(), newKey()];
    const held = granted(await cutOff.backend.acquire(request(key)));
    const obstacle = granted(await other.backend.acquire(request(busy)));
    const waiter = cutOff.backend.acquire(request(busy));
    await untilWaiting(cutOff);
    wire.refuse();
    const next = granted(await other.backend.acquire(request(key)));
    expect(performance.now()).toBeGreaterThan(held.validUntil);
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken!);
    wire.admit();
    await until(() => has(cutOff, 'recovered'), 'there is a new session');
    const types = cutOff.events.map(({ type }) => type);
    expect(types.indexOf('lost')).toBeLessThan(types.indexOf('recovered'));
    await until(async () => (await zk.admin.children(folderOf(busy))).length === 2, 'it is queued again');
    await other.backend.release(obstacle);
    granted(await waiter);
    expect(await cutOff.backend.release(held)).toBe('lost');
  }, 60_000);

  it('detects a half-open connection before its session ends', async () => {
    const sessions = () => zk.admin.children('/lock/%sessions');
    const others = await sessions();
    const idle = await wired(15_000);
    const [own] = (await sessions()).filter((name) => !others.includes(name));
    wire.freeze();
    // After half of the session: session.spec.ts shows on a fake clock how long it takes at most.
    await until(() => has(idle, 'unavailable'), 'the silence is detected', 60_000);
    expect(await sessions()).toContain(own);
    wire.thaw();
    await until(() => has(idle, 'recovered'), 'it is connected again');
  }, 120_000);

  it('reports once that it may not remove its nodes and does not retry, and the keys are free when its session ends', async () => {
    const errors: string[] = [];
    const logger = { ...silentLogger, error: (message: string) => errors.push(message) };
    const options = { connectString: zk.server.connectString, sessionTimeout: SHORT_SESSION };
    const { backend } = await startBackend(options, { logger });
    const { backend: first } = await connect();
    const [left, ...held] = Array.from({ length: 20 }, () => request(newKey(), { wait: 0 })) as [TestRequest];
    for (const { key } of [left, ...held]) {
      await zk.admin.create(folderOf(key));
      // All permissions but d (delete).
      await zk.admin.allow(folderOf(key), 'crwa');
    }
    const remove = jest.spyOn(SocketClient.prototype, 'remove');
    const retry = jest.spyOn(PendingRemovals.prototype, 'retry');
    granted(await first.acquire(request(left.key)));
    expect(await backend.acquire(left)).toBe('busy');
    const grants = await Promise.all(held.map(async (each) => granted(await backend.acquire(each))));

    // The core sends pending releases again, and the backend retries them with each patrol.
    for (let round = 0; round < 3; round += 1) {
      const outcomes = await Promise.all(grants.map((grant) => backend.release(grant)));
      expect(outcomes).toEqual(grants.map(() => 'unknown'));
    }
    retry.mockClear();
    await until(() => retry.mock.calls.length >= 3, 'it has patrolled');
    expect(remove.mock.calls.filter(([path]) => path.includes('/_c_'))).toHaveLength(1 + grants.length);
    expect(errors).toEqual([expect.stringMatching(/refused to remove \/lock\/key:\d+\/_c_.*NO_AUTH.*"d"/)]);
    jest.restoreAllMocks();

    await Promise.all([backend.close(), first.close()]);
    const { backend: next } = await connect();
    for (const { key } of [left, ...held]) granted(await next.acquire(request(key, { wait: 0 })));
  });

  it('warns about a session timeout that differs from the requested one', async () => {
    const { backend } = await startBackend({ connectString: zk.server.connectString, sessionTimeout: '2m' });
    const diagnostics = await backend.diagnose();
    expect(diagnostics.map(({ severity }) => severity)).toEqual(['warning', 'warning']);
    expect(diagnostics[0]!.message).toContain('session timeout to 60000 ms instead of 120000 ms');
    expect(diagnostics[1]!.message).toContain('single server');
  });

  describe('with credentials', () => {
    const chroot = '/closed';
    const connectAs = (credentials?: string) =>
      startBackend({
        connectString: `${zk.server.connectString}${chroot}`,
        sessionTimeout: SESSION,
        auth: credentials === undefined ? undefined : { credentials },
      });

    it('closes its nodes to all other clients', async () => {
      const { backend } = await connectAs('owner:secret');
      granted(await backend.acquire(request('order')));
      const stranger = await ZooKeeperAdmin.connect(zk.server.connectString);
      const owner = await ZooKeeperAdmin.connect(zk.server.connectString, 'owner:secret');
      await expect(stranger.children(`${chroot}/lock/order`)).rejects.toThrow('NO_AUTH');
      const [name] = await owner.children(`${chroot}/lock/order`);
      await expect(stranger.remove(`${chroot}/lock/order/${name}`)).rejects.toThrow('NO_AUTH');
      stranger.close();
      owner.close();
    });

    it('shares its locks with clients that have the same credentials, and refuses others, without revealing the password', async () => {
      const first = await connectAs('owner:secret');
      const held = granted(await first.backend.acquire(request('shared')));
      const second = await connectAs('owner:secret');
      expect(await second.backend.acquire(request('shared', { wait: 0 }))).toBe('busy');
      await first.backend.release(held);

      const refused: unknown = await connectAs('other:hidden').catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(LockConfigError);
      expect(refused).toMatchObject({ refused: true });
      expect(String((refused as Error).cause)).toContain('NO_AUTH');
      // Which node, which permission, and for which user.
      expect(String(refused)).toMatch(/the ACL of node "\/.+" does not grant permission \w \(\w+\) to user "other"\./);
      expect(String(refused) + String((refused as Error).cause)).not.toMatch(/hidden|secret/);
    });

    it('accepts a custom ACL', async () => {
      const acl = [
        { scheme: 'auth', id: '', permissions: 'cdrwa' },
        { scheme: 'world', id: 'anyone', permissions: 'r' },
      ];
      const { backend } = await startBackend({
        connectString: `${zk.server.connectString}/readable`,
        auth: { credentials: 'owner:secret' },
        acl,
      });
      granted(await backend.acquire(request('order')));
      const [name] = await zk.admin.children('/readable/lock/order');
      await expect(zk.admin.remove(`/readable/lock/order/${name}`)).rejects.toThrow('NO_AUTH');
    });
  });
});
