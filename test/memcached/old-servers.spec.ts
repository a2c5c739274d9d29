import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { type MemcachedServer, startMemcached } from '../servers/memcached-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

describe('memcached of an older version', () => {
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
    await expect(starting).rejects.toThrow(`memcached ${version} is too old for locks: it must be 1.6.10 or later`);
  });

  it('before 1.6.18 ends some replies with a space, and releases all the same', async () => {
    const own = await locksOn((text) => text.replaceAll(/\b(HD|EX|NF)\r\n/g, '$1 \r\n'));
    await own.start();
    expect(await (await own.acquire('a')).release()).toBe('released');
    expect(await (await own.acquire('a', { wait: 0 })).release()).toBe('released');
  });
});
