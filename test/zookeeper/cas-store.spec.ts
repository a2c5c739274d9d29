import { setTimeout as sleep } from 'node:timers/promises';
import type { CasStore } from '../../lib/api/lock-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { LockPaths } from '../../lib/providers/zookeeper/lock-path.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { describeCasStore } from '../contract/describe-cas-store.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from './seam.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';

/** A process must not lose its session because the machine is slow. */
const SESSION = 20_000;
const SHORT_SESSION = 3_000;

describe('the compare-and-set store on ZooKeeper', () => {
  let server: ZooKeeperServer;
  let admin: ZooKeeperAdmin;
  const stops: (() => Promise<unknown>)[] = [];

  beforeAll(async () => {
    server = await startZooKeeper();
    admin = await ZooKeeperAdmin.connect(server.connectString);
  }, 60_000);
  afterEach(() => Promise.all(stops.splice(0).map((stop) => stop())));
  afterAll(async () => {
    admin.close();
    await server.stop();
  });

  async function process(sessionTimeout = SESSION): Promise<{ store: CasStore; wire: TcpProxy }> {
    const wire = await startTcpProxy(server.port);
    const provider = new ZooKeeperLockProvider({ connectString: `127.0.0.1:${wire.port}`, sessionTimeout });
    const locks = new LockManager({ providers: { zookeeper: provider }, namespace: 'test', shutdownGrace: 0 });
    stops.push(async () => {
      await locks.stop();
      await wire.close();
    });
    await locks.start();
    return { store: locks.admin.backend(ZooKeeperBackend).casStore, wire };
  }
  const versionOf = async (name: string) =>
    (await admin.stat(`${new LockPaths('', 'test').failovers}/${name}`))?.version;

  describeCasStore(async () => (await process()).store);

  it('writes also to confirm a value, and when the new value is there already', async () => {
    const { store } = await process();
    await store.compareAndSet('confirmed', null, 'a');
    expect(await store.compareAndSet('confirmed', 'a', 'a')).toBe('a');
    expect(await versionOf('confirmed')).toBe(1);
    expect(await store.compareAndSet('confirmed', 'gone', 'a')).toBe('a');
    expect(await versionOf('confirmed')).toBe(2);
    expect(await store.compareAndSet('confirmed', 'gone', 'b')).toBe('a');
    expect(await versionOf('confirmed')).toBe(2);
  });

  it('keeps values after the session that has written them', async () => {
    const { store } = await process();
    await store.compareAndSet('kept', null, 'a');
    await stops.pop()?.();
    const next = await process();
    expect(await next.store.compareAndSet('kept', null, 'b')).toBe('a');
  });

  it('is where a failover agrees, on a provider of its own', async () => {
    const fleet = await Promise.all(
      [1, 2].map(async () => {
        const main = new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'zookeeper', window: '1s' });
        const locks = new LockManager({
          providers: {
            a: new MemoryLockProvider(),
            b: new MemoryLockProvider(),
            zookeeper: new ZooKeeperLockProvider({ connectString: server.connectString, sessionTimeout: SESSION }),
            main,
          },
          default: 'main',
          namespace: 'agreed',
          shutdownGrace: 0,
        });
        stops.push(() => locks.stop());
        await locks.start();
        return { main: locks.admin.backend(FailoverBackend), locks };
      }),
    );
    const [one, two] = fleet as [(typeof fleet)[0], (typeof fleet)[0]];
    const before = await one.locks.withLock('k', ({ fencingToken }) => fencingToken ?? 0n);
    await one.main.switchTo('b');
    await until(() => two.main.state.epoch === 2, 'the other process has switched', 60_000);
    const after = await two.locks.withLock('k', ({ fencingToken }) => fencingToken ?? 0n, { wait: '1m' });
    expect(after >> 52n).toBe(2n);
    expect(before >> 52n).toBe(1n);
  }, 150_000);

  it('fails within a session when the server does not answer, and the outcome can be asked for again', async () => {
    const { store, wire } = await process(SHORT_SESSION);
    await store.compareAndSet('silent', null, 'a');
    wire.freeze();
    const sentAt = performance.now();
    await expect(store.compareAndSet('silent', 'a', 'b')).rejects.toBeInstanceOf(LockUnavailableError);
    // Silence is noticed within a session. Nothing else would end the wait.
    expect(performance.now() - sentAt).toBeLessThan(10 * SHORT_SESSION);
    wire.thaw();
    let found: string | null | undefined;
    while ((found = await store.compareAndSet('silent', 'a', 'b').catch(() => undefined)) === undefined) {
      await sleep(20);
    }
    expect(found).toBe('b');
  }, 90_000);
});
