import { type ChildProcess, fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { LockManager } from '../../lib/core/lock-manager.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { type Observer, startObserver, until } from './observer.js';

const WAITERS = 8;
const KILLED = 4;
/** How long a killed process keeps its place, in ms. One that is only slow must not lose it. */
const SESSION = 6_000;
const seed = process.env.LOCK_SEED ?? String(Date.now());

describe('waiters that are killed', () => {
  let server: ZooKeeperServer;
  let observer: Observer;
  let library: CompiledLibrary;
  let here: LockManager;
  const workers: ChildProcess[] = [];

  beforeAll(async () => {
    server = await startZooKeeper();
    observer = await startObserver(server.connectString);
    library = await compileLibrary();
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
    await library.remove();
    await server.stop();
  });

  it(`the others are served in their order, and each node wakes one of them (LOCK_SEED=${seed})`, async () => {
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
      await until(async () => (await observer.attemptsIn('/lock/queue')).length === place + 2, `${place} waits`);
    }
    await until(async () => (await watchers(server, observer)).length === WAITERS, 'all of them watch');
    expect(await watchers(server, observer)).toEqual(workers.map(() => 1));

    // Half of the chosen die while they wait, the others when it is their turn, the lock in their hands.
    const chosen = shuffled(WAITERS).slice(0, KILLED);
    const [waiting, holding] = [chosen.slice(0, KILLED / 2), chosen.slice(KILLED / 2)];
    for (const place of waiting) workers[place]!.kill('SIGKILL');
    const expected = [...workers.keys()].filter((place) => !waiting.includes(place));
    await lock.release();
    for (const [turn, place] of expected.entries()) {
      await until(() => served.length > turn, `the next one has the lock, after ${served.join(', ')}`);
      expect(served).toEqual(expected.slice(0, turn + 1));
      expect(Math.max(0, ...(await watchers(server, observer)))).toBeLessThanOrEqual(1);
      if (holding.includes(place)) workers[place]!.kill('SIGKILL');
      else workers[place]!.send('release');
    }

    await until(async () => (await observer.attemptsIn('/lock/queue')).length === 0, 'nothing is left');
  }, 240_000);
});

/** How many sessions watch each of the nodes that others watch. A holder watches its own node as well. */
async function watchers(server: ZooKeeperServer, observer: Observer): Promise<number[]> {
  const watched = (await server.ask('wchp')).split(/^(?=\/)/m).filter((text) => text.startsWith('/lock/queue/'));
  const counts = watched.map(async (text) => {
    const [path = '', ...sessions] = text.trim().split(/\s+/);
    const owner = await observer.ownerOf(path);
    return sessions.filter((session) => session !== `0x${owner?.replace(/^0+/, '')}`).length;
  });
  return (await Promise.all(counts)).filter((count) => count > 0);
}

/** 0 to n − 1, in an order that the seed decides. */
function shuffled(n: number): number[] {
  const digest = (index: number) => createHash('sha1').update(`${seed}:${index}`).digest('hex');
  return [...Array(n).keys()].sort((a, b) => (digest(a) < digest(b) ? -1 : 1));
}
