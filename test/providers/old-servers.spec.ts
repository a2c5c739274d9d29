import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { whyTooOld } from '../../lib/providers/shared/oldest-version.js';
import { startBackend } from '../redis/seam.js';
import { startRedlock } from '../redlock/quorum.js';
import { type MemcachedServer, startMemcached } from '../servers/memcached-server.mjs';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

describe('a Redis older than 6.2', () => {
  let servers: readonly RedisServer[];
  let old: TcpProxy;
  const urls = () => [...servers.slice(0, 2).map(({ url }) => url), `redis://127.0.0.1:${old.port}`];

  beforeAll(async () => {
    servers = await Promise.all([startRedisServer(), startRedisServer(), startRedisServer()]);
    // The version keeps its length, since the reply contains the total length.
    old = await startTcpProxy(servers[2]!.port, {
      rewrite: (text) => text.replace(/(redis_version:)\d\.\d/, '$16.0'),
    });
  });
  afterAll(async () => {
    await old.close();
    await Promise.all(servers.map((server) => server.stop()));
  });

  it('fails the boot', async () => {
    const starting = startBackend({ url: `redis://127.0.0.1:${old.port}` });
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow(/Redis 6\.0[.\d]* is too old for locks: use version 6\.2 or later/);
  });

  it('fails the boot as a Redlock node, and the error contains its number', async () => {
    const starting = startRedlock({ nodes: urls().map((url) => ({ url })) });
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow(/node 3 cannot be used: Redis 6\.0[.\d]* is too old/);
  });
});

describe('an old memcached', () => {
  let server: MemcachedServer;
  let old: TcpProxy;
  let locks: LockManager | undefined;

  beforeAll(async () => {
    server = await startMemcached();
  });
  afterEach(async () => {
    await locks?.stop();
    await old.close();
  });
  afterAll(() => server.stop());

  async function locksOn(rewrite: (text: string) => string): Promise<LockManager> {
    old = await startTcpProxy(server.port, { rewrite });
    locks = new LockManager({
      providers: { memcached: new MemcachedLockProvider({ server: `127.0.0.1:${old.port}` }) },
    });
    return locks;
  }

  it.each(['1.4.39', '1.6.9'])('%s fails the boot, because it would never grant a lock', async (version) => {
    const starting = (await locksOn((text) => text.replace(/^VERSION .*?\r/, `VERSION ${version}\r`))).start();
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow(`memcached ${version} is too old for locks: use version 1.6.10 or later`);
  });

  it('before 1.6.18 ends some replies with a space, and still releases locks', async () => {
    const own = await locksOn((text) => text.replaceAll(/\b(HD|EX|NF)\r\n/g, '$1 \r\n'));
    await own.start();
    expect(await (await own.acquire('a')).release()).toBe('released');
    expect(await (await own.acquire('a', { wait: 0 })).release()).toBe('released');
  });
});

it.each([
  ['10.5.23-MariaDB-0+deb11u1', '10.6'],
  ['9.9', '10.6'],
  ['1.6.9', '1.6.10'],
  ['8.0.0-dmr', '8.0.1'],
  ['8', '8.0.1'],
])('%s is older than %s', (version, oldest) => {
  const [number] = version.split('-');
  expect(whyTooOld('It', version, oldest)).toBe(`It ${number!} is too old for locks: use version ${oldest} or later.`);
});

it.each([
  ['10.6.0-MariaDB', '10.6'],
  ['11.0', '10.6'],
  ['1.6.10', '1.6.10'],
  ['18beta1', '13'],
  ['13.16 (Debian 13.16-0+deb11u1)', '13'],
  ['mcrouter', '1.6.10'],
  ['', '6.2'],
])('%p is not older than %s, or has no version', (version, oldest) => {
  expect(whyTooOld('It', version, oldest)).toBeUndefined();
});
