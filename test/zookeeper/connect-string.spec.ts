import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { ZooKeeperAdmin } from './zookeeper-admin.js';

describe('The connect string of two services, on a server', () => {
  let server: ZooKeeperServer;
  let admin: ZooKeeperAdmin;
  const started: LockManager[] = [];
  beforeAll(async () => {
    server = await startZooKeeper();
    admin = await ZooKeeperAdmin.connect(server.connectString);
  }, 60_000);
  afterEach(() => Promise.all(started.splice(0).map((locks) => locks.stop())));
  afterAll(async () => {
    admin.close();
    await server.stop();
  });

  /** An application whose locks are on these servers. */
  async function start(connectString: string): Promise<LockManager> {
    const locks = new LockManager({ providers: { zookeeper: new ZooKeeperLockProvider({ connectString }) } });
    started.push(locks);
    await locks.start();
    return locks;
  }
  /** How many clients the server has had, without the request itself. */
  const clients = async () => Number(/zk_connection_request_count\t(\d+)/.exec(await server.ask('mntr'))![1]);

  it('with a folder for each address is refused before it connects, and creates nothing', async () => {
    const [first, second] = [`127.0.0.1:${server.port}/x`, `localhost:${server.port}/x`];
    const [nodes, before] = [await admin.children('/'), await clients()];
    for (const connectString of [`${first},${second}`, `${second},${first}`, `${first}, ${second}`]) {
      const starting = (async () => (await start(connectString)).acquire('a'))();
      await expect(starting).rejects.toBeInstanceOf(LockConfigError);
      await expect(starting).rejects.toThrow('Put the path after the last address: zk1:2181,zk2:2181/shop.');
    }
    expect(await admin.children('/')).toEqual(nodes);
    expect(await clients()).toBe(before);
  });

  it('may have blanks around addresses and folder, in any order of the servers: they lock each other out', async () => {
    const [first, second] = [`127.0.0.1:${server.port}`, `localhost:${server.port}`];
    const locks = await start(` ${first} ,\t${second} /shop \n`);
    const others = await start(`${second}, ${first},/shop`);
    const held = await locks.acquire('a');
    expect(await others.tryAcquire('a')).toBeNull();
    expect(await held.release()).toBe('released');
    const next = await others.acquire('a');
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken!);
    expect(await next.release()).toBe('released');
    expect(await admin.children('/shop')).not.toEqual([]);
    // No folder whose name has the blanks.
    expect((await admin.children('/')).sort()).toEqual(['shop', 'zookeeper']);
  });
});
