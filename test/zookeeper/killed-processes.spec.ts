import { type ChildProcess, fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { LockManager } from '../../lib/core/lock-manager.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';
import { startEnsemble, type ZooKeeperEnsemble } from '../servers/zookeeper-ensemble.js';

const seed = process.env.LOCK_SEED ?? String(Date.now());

let library: CompiledLibrary;
beforeAll(async () => {
  library = await compileLibrary();
}, 60_000);
afterAll(() => library.remove());

describe('killed waiters', () => {
  const WAITERS = 8;
  const KILLED = 4;
  /** How long a killed process keeps its place, in ms. A process that is only slow must not lose its place. */
  const SESSION = 6_000;
  let server: ZooKeeperServer;
  let observer: ZooKeeperAdmin;
  let here: LockManager;
  const workers: ChildProcess[] = [];

  beforeAll(async () => {
    server = await startZooKeeper();
    observer = await ZooKeeperAdmin.connect(server.connectString);
    here = new LockManager({
      providers: { zookeeper: new ZooKeeperLockProvider({ connectString: server.connectString }) },
      shutdownGrace: 0,
    });
    await here.start();
  }, 120_000);

  afterAll(async () => {
    for (const worker of workers) worker.kill('SIGKILL');
    await here.stop();
    observer.close();
    await server.stop();
  });

  it(`leave the others served in order, with each node waking one waiter (LOCK_SEED=${seed})`, async () => {
    const lock = await here.acquire('queue');
    await Promise.all(
      Array.from({ length: WAITERS }, async () => {
        const args = [library.folder, server.connectString, 'queue', String(SESSION)];
        const worker = fork(join(import.meta.dirname, 'waiter.mjs'), args, { execArgv: [] });
        workers.push(worker);
        const isReady = once(worker, 'message').then(() => true);
        expect(await Promise.race([isReady, once(worker, 'exit').then(() => false)])).toBe(true);
      }),
    );
    const served: number[] = [];
    for (const [place, worker] of workers.entries()) {
      worker.on('message', (message) => {
        if (message === 'granted') served.push(place);
      });
      worker.send('acquire');
      await until(async () => (await observer.children('/lock/queue')).length === place + 2, `${place} waits`);
    }
    await until(async () => (await watchers(server, observer)).length === WAITERS, 'all waiters watch');
    expect(await watchers(server, observer)).toEqual(workers.map(() => 1));

    // Half of the chosen processes die while they wait, the others while they hold the lock.
    const chosen = shuffled(WAITERS).slice(0, KILLED);
    const [waiting, holding] = [chosen.slice(0, KILLED / 2), chosen.slice(KILLED / 2)];
    for (const place of waiting) workers[place]!.kill('SIGKILL');
    const expected = [...workers.keys()].filter((place) => !waiting.includes(place));
    await lock.release();
    for (const [turn, place] of expected.entries()) {
      await until(() => served.length > turn, `the next waiter holds the lock, after ${served.join(', ')}`);
      expect(served).toEqual(expected.slice(0, turn + 1));
      expect(Math.max(0, ...(await watchers(server, observer)))).toBeLessThanOrEqual(1);
      if (holding.includes(place)) workers[place]!.kill('SIGKILL');
      else workers[place]!.send('release');
    }

    await until(async () => (await observer.children('/lock/queue')).length === 0, 'nothing is left');
  }, 240_000);
});

/**
 * Returns the number of watching sessions of each node that other sessions watch. A holder watches its own node as
 * well.
 */
async function watchers(server: ZooKeeperServer, observer: ZooKeeperAdmin): Promise<number[]> {
  const watched = (await server.ask('wchp')).split(/^(?=\/)/m).filter((text) => text.startsWith('/lock/queue/'));
  const counts = watched.map(async (text) => {
    const [path = '', ...sessions] = text.trim().split(/\s+/);
    const owner = (await observer.stat(path))?.ephemeralOwner.toString('hex');
    return sessions.filter((session) => session !== `0x${owner?.replace(/^0+/, '')}`).length;
  });
  return (await Promise.all(counts)).filter((count) => count > 0);
}

/** Returns 0 to n − 1 in an order that the seed decides. */
function shuffled(n: number): number[] {
  const digest = (index: number) => createHash('sha1').update(`${seed}:${index}`).digest('hex');
  return [...Array(n).keys()].sort((a, b) => (digest(a) < digest(b) ? -1 : 1));
}

describe('a process that holds as many locks as it can', () => {
  /** How long the locks of a killed process stay, in ms. */
  const SESSION = 8_000;
  /** Long keys, so that few locks are enough. */
  const KEY_LENGTH = 195;
  /** With this many locks, the servers can't read the transaction that ends the session: 2.6 MB. */
  const TOO_MANY = 10_000;
  let ensemble: ZooKeeperEnsemble;
  let here: LockManager;
  let hoarder: ChildProcess | undefined;

  beforeAll(async () => {
    ensemble = await startEnsemble({ config: { syncLimit: 50 } });
    const { connectString } = ensemble;
    here = new LockManager({ providers: { zookeeper: new ZooKeeperLockProvider({ connectString }) } });
    await here.start();
  }, 120_000);
  afterAll(async () => {
    hoarder?.kill('SIGKILL');
    await here.stop();
    await ensemble.stop();
  });

  it('may crash: the servers end its session and can restart', async () => {
    const args = [library.folder, ensemble.connectString, SESSION, KEY_LENGTH, TOO_MANY].map(String);
    hoarder = fork(join(import.meta.dirname, 'hoarder.mjs'), args, { execArgv: [] });
    const [[first, second]] = (await once(hoarder, 'message')) as [{ count: number; code?: string }[]];
    const key = '0'.padStart(KEY_LENGTH, 'k');
    expect(await here.tryAcquire(key)).toBeNull();

    hoarder.kill('SIGKILL');
    const lock = await here.acquire(key, { wait: '1m' });
    await lock.release();
    for (const server of ensemble.servers) await server.kill();
    await Promise.all(ensemble.servers.map((server) => server.restart()));
    await (await here.acquire(key, { wait: '1m' })).release();

    // Releases make room.
    expect(second).toEqual(first);
    expect(first!.code).toBe('LOCK_CAPACITY');
    expect(first!.count).toBeGreaterThan(3_000);
  }, 180_000);
});
