import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Lock } from '../../lib/api/lock.js';
import { LockBusyError, LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { AdvisoryLockBackend } from '../../lib/providers/sql/session-lock-backends.js';
import { SqlAdvisoryLockProvider } from '../../lib/providers/sql/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { LockProcesses, SqlBackend, type SqlType } from './sql-backend.js';
import { direct, requestFor } from '../direct-backend.js';
import { until } from '../until.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];
let library: CompiledLibrary;

beforeAll(async () => {
  library = await compileLibrary();
}, 60_000);
afterAll(() => library.remove());

describe.each(databases)('advisory locks on %s', (type) => {
  const backend = SqlBackend.forTests(type);
  const processes = new LockProcesses();
  const workers: ChildProcess[] = [];

  afterEach(async () => {
    for (const worker of workers.splice(0)) worker.kill('SIGKILL');
  });

  const process = async (options: Parameters<SqlBackend['advisoryProvider']>[0] = {}) =>
    processes.start(await backend.advisoryProvider(options));

  const holders = (key: string) => backend.advisoryHolders('test', key);

  async function worker(key: string, sessionGuard: string): Promise<{ child: ChildProcess; token: bigint }> {
    const { options } = backend.source();
    const path = fileURLToPath(new URL('advisory-worker.mjs', import.meta.url));
    const child = fork(path, [library.folder, JSON.stringify(options), key, sessionGuard], { execArgv: [] });
    workers.push(child);
    const ended = once(child, 'exit').then(() => {
      throw new Error('The worker exited before it acquired the lock.');
    });
    const [{ token }] = (await Promise.race([once(child, 'message'), ended])) as [{ token: string }];
    return { child, token: BigInt(token) };
  }

  it('fifty locks use one connection, and losing it loses all of them and no other lock', async () => {
    const [ann, bob] = [await process(), await process()];
    const held: Lock[] = [];
    for (let index = 0; index < 50; index += 1) held.push(await ann.acquire(`key:${index}`));
    const connections = new Set<number>();
    for (let index = 0; index < 50; index += 1) for (const id of await holders(`key:${index}`)) connections.add(id);
    expect(connections.size).toBe(1);
    const waiting = bob.acquire('key:0');
    const other = await bob.acquire('other');
    await backend.revokeAdvisory('test', 'key:0');
    await until(() => held.every((lock) => !lock.isHeld()), 'all locks are lost');
    await (await waiting).release();
    expect(other.isHeld()).toBe(true);
    // The next locks are on a new connection.
    const again = await ann.acquire('key:1');
    expect(await holders('key:1')).not.toEqual([...connections]);
    expect(await again.release()).toBe('released');
    expect(await other.release()).toBe('released');
  });

  it('a process keeps its own callers apart, because a session never blocks itself', async () => {
    const provider = await backend.advisoryProvider();
    const locks = direct((await processes.start(provider)).admin.backend(AdvisoryLockBackend));
    const ask = (id: string, wait = 0) => locks.acquire(requestFor('k', id, { wait }));
    const answers = await Promise.all(['one', 'two', 'three'].map((holder) => ask(holder)));
    const [grant, ...more] = answers.filter((answer) => answer !== 'busy');
    expect(more).toEqual([]);
    // A retry with the same id is the same hold, and one release ends it.
    expect(await locks.acquire(grant!.request)).toMatchObject({ holder: grant!.holder });
    const waiter = ask('four', 60_000);
    await sleep(50);
    expect(await locks.release(grant!)).toBe('released');
    const next = await waiter;
    expect(next).toMatchObject({ holder: 'four' });
    expect(await holders('k')).toHaveLength(1);
    if (next !== 'busy') await locks.release(next);
    expect(await holders('k')).toEqual([]);
  });

  it('a lock whose reply arrives too late is released, and the other locks on its connection stay', async () => {
    const provider = await backend.advisoryProvider({ commandTimeout: '1s' });
    const locks = await processes.start(provider);
    const held = await locks.acquire('held');
    const wire = backend.wireOf(provider)!;
    wire.holdReplies();
    await expect(locks.acquire('late', { wait: 0 })).rejects.toBeInstanceOf(LockUnavailableError);
    // The server has granted the lock.
    expect(await holders('late')).toHaveLength(1);
    wire.passReplies();
    await until(async () => (await holders('late')).length === 0, 'the late lock is released');
    expect(await holders('held')).toHaveLength(1);
    expect(await held.release()).toBe('released');
  });

  it('the guard frees the lock of a frozen process, whose token is smaller than the next one', async () => {
    const { child, token } = await worker('frozen', '2s');
    const locks = await process({ fencing: true });
    child.kill('SIGSTOP');
    const start = performance.now();
    const lock = await locks.acquire('frozen');
    // The guard is 2 s. The default is 30 s, and without a guard the lock is held until the process ends.
    expect(performance.now() - start).toBeLessThan(20_000);
    expect(lock.fencingToken).toBeGreaterThan(token);
    child.kill('SIGCONT');
    child.send('?');
    expect(await once(child, 'message')).toMatchObject([{ isHeld: false }]);
    await lock.release();
  }, 60_000);

  it('the lock of a process that dies is freed immediately', async () => {
    // The guard outlasts the wait.
    const { child } = await worker('dead', '10m');
    const locks = await process();
    const waiting = locks.acquire('dead', { wait: '1m' });
    child.kill('SIGKILL');
    await (await waiting).release();
  }, 90_000);

  it('the server ends a session whose connection broke only on the client side', async () => {
    const provider = await backend.advisoryProvider();
    const [ann, bob] = [await processes.start(provider), await process()];
    const lock = await ann.acquire('a');
    const [id] = await holders('a');
    const port =
      type === 'mariadb'
        ? `SELECT SUBSTRING_INDEX(host, ':', -1) AS port FROM information_schema.processlist WHERE id = ${id}`
        : `SELECT client_port AS port FROM pg_stat_activity WHERE pid = ${id}`;
    const [row] = await backend.admin.query<{ port: unknown }[]>(port);
    backend.wireOf(provider)?.forget(Number(row!.port));
    // Otherwise the server would keep the session until the guard of ten minutes expires.
    await (await bob.acquire('a', { wait: '2m' })).release();
    expect(await lock.release()).toBe('lost');
    await (await ann.acquire('a')).release();
  });

  it('ten callers with nested locks on two connections end busy, never in a deadlock', async () => {
    const [ann, bob] = [await process({ maxConnections: 2 }), await process()];
    const inner = await bob.acquire('inner');
    const nested = (wait: number) =>
      Promise.allSettled(
        Array.from({ length: 10 }, (_, index) =>
          ann.withLock(`outer:${index}`, () => ann.withLock(`inner${index < 5 ? '' : index}`, () => index, { wait })),
        ),
      );
    // Five find the inner lock held. One waits on the remaining connection, and all five time out.
    const outcomes = await nested(3_000);
    expect(outcomes.map(({ status }) => status === 'fulfilled')).toEqual(Array.from({ length: 10 }, (_, i) => i >= 5));
    // One connection holds and one waits. A second key to wait for is polled on the first.
    const other = await bob.acquire('z');
    const pin = await ann.acquire('pin');
    const isWaiting = new Promise((resolve) => void ann.events.on('waiting', resolve));
    const first = ann.acquire('inner');
    await isWaiting;
    await expect(ann.acquire('z', { wait: 200 })).rejects.toBeInstanceOf(LockBusyError);
    const polling = ann.acquire('z', { wait: '20s' });
    await inner.release();
    await other.release();
    await (await polling).release();
    await (await first).release();
    await pin.release();
    const again = await nested(60_000);
    expect(again.every(({ status }) => status === 'fulfilled')).toBe(true);
  }, 90_000);

  it('a server crash loses the locks, and tokens keep growing', async () => {
    const locks = await process({ fencing: true });
    const lock = await locks.acquire('a');
    await backend.server.crash();
    await until(() => !lock.isHeld(), 'the lock is lost');
    const next = await locks.acquire('a');
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken ?? 0n);
    expect(await lock.release()).toBe('lost');
    await next.release();
  }, 120_000);

  it("needs no table, and rejects what it can't do", async () => {
    await backend.admin.query('DROP TABLE IF EXISTS distributed_lock');
    const locks = await process({ synchronize: false });
    await (await locks.acquire('a')).release();
    await expect(process({ synchronize: false, fencing: true })).rejects.toBeInstanceOf(LockConfigError);
    const shared = locks.acquire('a', { mode: 'shared' });
    if (type === 'mariadb') await expect(shared).rejects.toBeInstanceOf(LockConfigError);
    else await (await shared).release();
  });

  if (type === 'postgres') {
    it('requests share one connection attempt during an outage', async () => {
      const wire = await startTcpProxy(backend.server.port);
      let openings = 0;
      const stream = () => {
        openings += 1;
        return new Socket();
      };
      const connectionString = backend.server.url.replace(`:${backend.server.port}`, `:${wire.port}`);
      const provider = new SqlAdvisoryLockProvider({ postgres: { connectionString, stream } });
      const locks = direct((await processes.start(provider)).admin.backend(AdvisoryLockBackend));
      wire.refuse();
      await sleep(100);
      openings = 0;
      const requests = Array.from({ length: 200 }, (_, index) => locks.acquire(requestFor(`key:${index}`, `${index}`)));
      await expect(Promise.any(requests)).rejects.toBeInstanceOf(AggregateError);
      expect(openings).toBeLessThan(10);
      await wire.close();
    });

    it("readers of one process share a connection, keep its writer out, and don't overtake a writer in another process", async () => {
      const provider = await backend.advisoryProvider();
      const [ann, bob] = [await processes.start(provider), await process()];
      const readers = [await ann.acquire('r', { mode: 'shared' }), await ann.acquire('r', { mode: 'shared' })];
      expect(new Set(await holders('r')).size).toBe(1);
      // The session of this process would be granted the lock, because no other session has it.
      expect(await ann.tryAcquire('r')).toBeNull();
      const writer = bob.acquire('r');
      await until(async () => (await waitersOf()) === 1, 'the writer waits');
      expect(await ann.tryAcquire('r', { mode: 'shared' })).toBeNull();
      for (const reader of readers) expect(await reader.release()).toBe('released');
      await (await writer).release();
    });
    const waitersOf = async () => {
      const sql = `SELECT COUNT(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`;
      const [row] = await backend.admin.query<{ n: unknown }[]>(sql);
      return Number(row!.n);
    };
  }
});
