import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { LockManager } from '../../lib/core/lock-manager.js';
import { ZooKeeperLockProvider, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/index.js';
import { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { compileLibrary } from '../servers/compiled-library.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { startEnsemble, type ZooKeeperEnsemble } from '../servers/zookeeper-ensemble.js';
import { isSettled } from '../redis/seam.js';
import { until } from '../until.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';

/** For tests that wait for the session to end. */
const SESSION = 6_000;
/** Outlasts elections, even on a busy machine. */
const LONG_SESSION = 50_000;

describe('three servers, some of which fall silent', () => {
  let ensemble: ZooKeeperEnsemble;
  let observer: ZooKeeperAdmin;
  const managers: LockManager[] = [];
  const workers: ChildProcess[] = [];

  beforeAll(async () => {
    // A session has ten ticks. A follower that is cut off keeps answering its clients for 100 ticks = 60 s: ten
    // sessions.
    ensemble = await startEnsemble({ tickTime: SESSION / 10, config: { syncLimit: 100 } });
    observer = await ZooKeeperAdmin.connect(ensemble.connectString);
  }, 120_000);

  afterEach(async () => {
    for (const worker of workers.splice(0)) worker.kill('SIGKILL');
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });

  afterAll(async () => {
    observer.close();
    await ensemble.stop();
  });

  /** Each manager is a separate process to ZooKeeper. */
  async function startProcess(options: Partial<ZooKeeperLockProviderOptions> = {}): Promise<LockManager> {
    const provider = new ZooKeeperLockProvider({
      connectString: ensemble.connectString,
      sessionTimeout: SESSION,
      ...options,
    });
    const manager = new LockManager({ providers: { zookeeper: provider }, shutdownGrace: 0 });
    managers.push(manager);
    await manager.start();
    return manager;
  }

  const nodeOf = async (key: string) => `/lock/${key}/${(await observer.children(`/lock/${key}`))[0]}`;

  it('a hold stays in the same session while the leader is killed three times, and no other process gets the lock', async () => {
    const options = { sessionTimeout: LONG_SESSION };
    const [one, other] = [await startProcess(options), await startProcess(options)];
    const lock = await one.acquire('survives');
    const node = await nodeOf('survives');
    const owner = (await observer.stat(node))?.ephemeralOwner.toString('hex');
    let isEntered = false;
    const waiter = other.acquire('survives', { wait: '10m' }).then((second) => {
      isEntered = true;
      return second;
    });

    for (let time = 0; time < 3; time += 1) {
      const leader = await ensemble.leader();
      await leader.kill();
      await ensemble.leader();
      // With two of three servers running, no other server may fail, so the killed one restarts first, and all sessions
      // have moved.
      await leader.restart();
      await until(async () => (await ensemble.followers()).length === 2, 'all three serve');
      expect(lock.isHeld()).toBe(true);
    }
    expect((await observer.stat(node))?.ephemeralOwner.toString('hex')).toBe(owner);
    expect(isEntered).toBe(false);

    expect(await lock.release()).toBe('released');
    await (await waiter).release();
  }, 180_000);

  it('a client cut off from all servers is uncertain before its deadline, and loses its lock before another holder enters', async () => {
    const wires: TcpProxy[] = await Promise.all(ensemble.servers.map(({ port }) => startTcpProxy(port)));
    // The long session leaves seconds between the detected silence and the deadline.
    const cut = await startProcess({
      connectString: wires.map(({ port }) => `127.0.0.1:${port}`).join(','),
      sessionTimeout: 2 * SESSION,
    });
    const other = await startProcess();
    const reports: string[] = [];
    cut.events.on('unavailable', () => reports.push('uncertain'));
    cut.events.on('lost', () => reports.push('lost'));
    const lock = await cut.acquire('partitioned');
    const entered = other.acquire('partitioned', { wait: '2m' }).then((second) => {
      reports.push(lock.isHeld() ? 'entered while held' : 'entered');
      return second;
    });
    await until(async () => (await observer.children('/lock/partitioned')).length === 2, 'the other one waits');

    for (const wire of wires) wire.freeze();
    const second = await entered;

    expect(reports).toEqual(['uncertain', 'lost', 'entered']);
    expect(second.fencingToken).toBeGreaterThan(lock.fencingToken ?? 0n);
    expect(await lock.release()).toBe('lost');
    await second.release();
    // The network recovers, and the next session opens without a request.
    for (const wire of wires) wire.thaw();
    await (await cut.acquire('partitioned', { wait: '1m' })).release();
    await Promise.all(wires.map((wire) => wire.close()));
  }, 180_000);

  it('holders on a follower that is cut off from its leader lose their locks before others enter, even if the follower still answers them', async () => {
    const [follower] = await ensemble.followers();
    if (!follower) throw new Error('There is no follower.');
    const leader = await ensemble.leader();
    // Each holder opens its session at a different time, so that the cut happens at different points of their
    // heartbeats.
    const count = 12;
    const holders: LockManager[] = [];
    for (let index = 0; index < count; index += 1) {
      holders.push(await startProcess({ connectString: follower.connectString }));
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    const locks = await Promise.all(holders.map((holder, index) => holder.acquire(`stale-${index}`, { wait: '1m' })));
    const other = await startProcess({ connectString: leader.connectString });
    const behindTheFollower = await ZooKeeperAdmin.connect(follower.connectString);
    const overlaps: number[] = [];
    const entries = locks.map(async (lock, index) => {
      const second = await other.acquire(`stale-${index}`, { wait: '2m' });
      if (lock.isHeld()) overlaps.push(index);
      return second;
    });
    await until(async () => (await observer.children(`/lock/stale-${count - 1}`)).length === 2, 'the others wait');

    ensemble.cutOff(follower);
    const seconds = await Promise.all(entries);

    expect(overlaps).toEqual([]);
    // This is the danger: a client of the follower still finds the first holder there.
    expect(await follower.ask('srvr')).toContain('Mode: follower');
    for (const index of locks.keys()) {
      expect(await behindTheFollower.children(`/lock/stale-${index}`)).toHaveLength(2);
    }
    expect(locks.map((lock) => lock.signal.aborted)).toEqual(locks.map(() => true));
    ensemble.join(follower);
    await Promise.all(seconds.map((second) => second.release()));
    behindTheFollower.close();
  }, 180_000);

  it('a token is the zxid of its node, even on a follower to which others write constantly', async () => {
    const [follower] = await ensemble.followers();
    if (!follower) throw new Error('There is no follower.');
    const [busy, other] = [
      await startProcess({ sessionTimeout: LONG_SESSION }),
      await startProcess({ connectString: follower.connectString, sessionTimeout: LONG_SESSION }),
    ];
    const admin = await ZooKeeperAdmin.connect(follower.connectString);
    const rounds = 30;
    let round = 0;
    const noise = Array.from({ length: 16 }, async (_, index) => {
      while (round < rounds) await (await busy.acquire(`noise-${index}`, { wait: '1m' })).release();
    });
    for (; round < rounds; round += 1) {
      const locks = await Promise.all([0, 1, 2].map((index) => other.acquire(`token-${index}`, { wait: '1m' })));
      for (const [index, lock] of locks.entries()) {
        const [name] = await admin.children(`/lock/token-${index}`);
        const stat = await admin.stat(`/lock/token-${index}/${name}`);
        expect(lock.fencingToken).toBe(stat?.czxid.readBigInt64BE());
      }
      await Promise.all(locks.map((lock) => lock.release()));
    }
    await Promise.all(noise);
    admin.close();
  }, 180_000);

  it('limited holders on all servers never exceed the limit, and every waiter enters', async () => {
    const { servers } = ensemble;
    const processes = await Promise.all(
      [...servers, ...servers].map(({ connectString }) =>
        startProcess({ connectString, sessionTimeout: LONG_SESSION }),
      ),
    );
    let used = 0;
    let most = 0;
    await Promise.all(
      processes.map(async (process, index) => {
        const weight = 1 + (index % 2);
        for (let turn = 0; turn < 20; turn += 1) {
          const lock = await process.acquire('crowded', { limit: 3, weight, wait: '2m' });
          most = Math.max(most, (used += weight));
          await new Promise((resolve) => setTimeout(resolve, 2));
          used -= weight;
          expect(await lock.release()).toBe('released');
        }
      }),
    );
    expect(most).toBeLessThanOrEqual(3);
    // Holders on two servers can use the whole limit.
    const [first, second] = processes as [LockManager, LockManager];
    await first.acquire('crowded', { limit: 3, weight: 2 });
    await second.acquire('crowded', { limit: 3 });
    expect(await second.tryAcquire('crowded', { limit: 3 })).toBeNull();
  }, 180_000);

  it('the compare-and-set store never returns an old value, even on a follower that has not received the change', async () => {
    const [follower] = await ensemble.followers();
    if (!follower) throw new Error('There is no follower.');
    const storeOn = async ({ connectString }: { readonly connectString: string }) => {
      // Long enough for the connection to outlive the cut.
      const provider = new ZooKeeperLockProvider({ connectString, sessionTimeout: LONG_SESSION });
      const manager = new LockManager({ providers: { zookeeper: provider }, shutdownGrace: 0 });
      managers.push(manager);
      await manager.start();
      return manager.admin.backend(ZooKeeperBackend).casStore;
    };
    const [ahead, behind] = [await storeOn(await ensemble.leader()), await storeOn(follower)];
    expect(await ahead.compareAndSet('epoch', null, 'one')).toBe('one');
    expect(await behind.compareAndSet('epoch', null, 'two')).toBe('one');
    const admin = await ZooKeeperAdmin.connect(follower.connectString);

    ensemble.cutOff(follower);
    expect(await ahead.compareAndSet('epoch', 'one', 'two')).toBe('two');
    const answers = [
      // The first expects a value that the follower doesn't have, and the second expects the follower's value.
      behind.compareAndSet('epoch', null, 'three'),
      behind.compareAndSet('epoch', 'one', 'three'),
    ];
    // The follower answers all reads. By the twentieth read, it would have answered these calls as well.
    for (let read = 0; read < 20; read += 1) expect(await admin.read('/lock/%records/epoch')).toBe('one');
    expect(await isSettled(Promise.race(answers))).toBe(false);
    ensemble.join(follower);

    expect(await Promise.all(answers)).toEqual(['two', 'two']);
    admin.close();
  }, 180_000);

  it('a holder whose process paused just before the cut loses its lock before another holder enters', async () => {
    const [follower] = await ensemble.followers();
    if (!follower) throw new Error('There is no follower.');
    const library = await compileLibrary();
    const args = [library.folder, follower.connectString, 'stood-still', String(SESSION)];
    const holder = fork(join(import.meta.dirname, 'waiter.mjs'), args, { execArgv: [] });
    workers.push(holder);
    const reports: string[] = [];
    const hears = (message: string) => until(() => reports.includes(message), `the process reports "${message}"`);
    holder.on('message', (message) => reports.push(message as string));
    await hears('ready');
    const other = await startProcess({ connectString: (await ensemble.leader()).connectString });

    holder.kill('SIGSTOP');
    holder.send('acquire');
    await new Promise((resolve) => setTimeout(resolve, SESSION * 0.6));
    holder.kill('SIGCONT');
    await hears('granted');
    ensemble.cutOff(follower);
    const second = await other.acquire('stood-still', { wait: '2m' });

    expect(reports).toEqual(['ready', 'granted', 'lost']);
    ensemble.join(follower);
    await second.release();
    await library.remove();
  }, 180_000);
});
