import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { until } from '../until.js';

const PROGRAM = fileURLToPath(new URL('contending-program.mjs', import.meta.url));
const NONE = { waits: 0, waited: 0 };

describe('the profile of contention, over several processes', () => {
  let server: RedisServer;
  let library: CompiledLibrary;
  let shop: LockManager;
  const others: ChildProcess[] = [];

  beforeAll(async () => {
    [server, library] = await Promise.all([startRedisServer(), compileLibrary()]);
  }, 60_000);
  beforeEach(async () => {
    const providers = { redis: new RedisLockProvider({ url: server.url }) };
    shop = new LockManager({ providers, instance: 'shop', logger: silentLogger, shutdownGrace: 0 });
    await shop.start();
  });
  afterEach(async () => {
    for (const other of others.splice(0)) other.kill('SIGKILL');
    await shop.stop();
  });
  afterAll(async () => {
    await library.remove();
    await server.stop();
  });

  async function start(instance: string): Promise<ChildProcess> {
    const other = fork(PROGRAM, [library.folder, server.url, instance], { execArgv: [] });
    others.push(other);
    await once(other, 'message');
    return other;
  }
  const tell = (other: ChildProcess, message: 'acquire' | 'release') => {
    const done = once(other, 'message');
    other.send(message);
    return done;
  };
  const waitersAre = (count: number) =>
    until(async () => (await shop.admin.inspect('order:1'))?.waiters === count, `${count} wait`);

  it('names the instance of the other process, which held for the whole wait', async () => {
    const billing = await start('billing');
    await tell(billing, 'acquire');
    await expect(shop.acquire('order:1', { wait: 200 })).rejects.toThrow('instance "billing" ');
    const granted = shop.acquire('order:1');
    await waitersAre(1);
    await tell(billing, 'release');
    await (await granted).release();
    const [row, ...rest] = shop.admin.contention();
    expect(rest).toEqual([]);
    expect(row).toMatchObject({
      template: 'order',
      provider: 'redis',
      queue: NONE,
      unknown: NONE,
      holder: { waits: 2 },
    });
    expect(row?.holder.waited).toBeGreaterThanOrEqual(200);
    expect(row?.instances).toEqual([{ instance: 'billing', ...row?.holder }]);
  });

  it('tells a queue from one holder: the lock went to a third process meanwhile', async () => {
    const [billing, third] = [await start('billing'), await start('third')];
    await tell(billing, 'acquire');
    const next = tell(third, 'acquire');
    await waitersAre(1);
    const refused = expect(shop.acquire('order:1', { wait: '4s' })).rejects.toThrow('it went from holder to holder');
    await waitersAre(2);
    await tell(billing, 'release');
    await next;
    await refused;
    expect(shop.admin.contention()).toMatchObject([
      { template: 'order', queue: { waits: 1 }, holder: NONE, instances: [] },
    ]);
  });
});
