import { Client } from 'pg';
import type { Lock } from '../../lib/api/lock.js';
import { LockCapacityError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { SqlAdvisoryLockProvider } from '../../lib/providers/sql/index.js';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { LockProcesses } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

// 10 × 400 entries, of which one process may use an eighth.
const MOST = 500;
const NESTED = 8;
const FREE = MOST - NESTED;

describe('advisory locks on a Postgres with a small lock table', () => {
  let server: SqlServer;
  let admin: Client;
  const processes = new LockProcesses();

  beforeAll(async () => {
    server = await startPostgres();
    const first = new Client(server.url);
    first.on('error', () => undefined);
    await first.connect();
    await first.query('ALTER SYSTEM SET max_locks_per_transaction = 10');
    await first.end();
    await server.crash();
    admin = new Client(server.url);
    admin.on('error', () => undefined);
    await admin.connect();
  }, 60_000);
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  const start = () =>
    processes.start(new SqlAdvisoryLockProvider({ url: server.url, commandTimeout: '10s', sessionGuard: '10m' }));

  /** Acquires as many locks as possible. Returns them with the first error. */
  async function takeAll(locks: LockManager, name: string, count: number) {
    const asked = Array.from({ length: count }, (_, index) => locks.acquire(`${name}:${index}`, { wait: 0 }));
    const outcomes = await Promise.allSettled(asked);
    const held = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? outcome.value : []));
    const [refusal] = outcomes.flatMap((outcome): unknown[] => (outcome.status === 'rejected' ? [outcome.reason] : []));
    return { held, refusal };
  }

  const held = async () =>
    Number(
      (await admin.query<{ n: string }>(`SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'`)).rows[0]!.n,
    );

  it('limits one process to an eighth of the table, and names the limit and the remedy in the error of the next lock', async () => {
    const locks = await start();
    const taken = await takeAll(locks, 'many', 6_000);
    expect(taken.held).toHaveLength(FREE);
    expect(await held()).toBe(FREE);
    expect(taken.refusal).toBeInstanceOf(LockCapacityError);
    expect(String(taken.refusal)).toMatch(
      /"many:\d+" of provider "sql" was not acquired.* 500 advisory locks .* an eighth of the 4000 entries .*raise max_locks_per_transaction/,
    );
    // Other processes are not limited.
    const others = await start();
    expect(await others.withLock('other', () => 'done', { wait: 0 })).toBe('done');
    await admin.query('SELECT count(*) FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid');
    await Promise.all(taken.held.map((lock) => lock.release()));
    expect(await held()).toBe(0);
    expect((await takeAll(locks, 'again', MOST)).held).toHaveLength(FREE);
  }, 60_000);

  it('lets a caller wait for an entry, and reports the limit when its wait ends', async () => {
    const locks = await start();
    const { held: all } = await takeAll(locks, 'full', FREE);
    const late = await locks.acquire('late', { wait: '100ms' }).catch((error: unknown) => error);
    expect(late).toBeInstanceOf(LockCapacityError);
    const waiting = locks.acquire('soon', { wait: '1m' });
    await until(() => locks.admin.waiting().length === 1, 'the caller waits');
    await all.pop()!.release();
    const lock = await waiting;
    expect(lock.isHeld()).toBe(true);
    expect(await held()).toBe(FREE);
  }, 60_000);

  it('grants a caller that holds a lock its next lock', async () => {
    const locks = await start();
    const outer = await locks.acquire('outer');
    await takeAll(locks, 'full', FREE);
    expect(await locks.tryAcquire('inner').catch((error: unknown) => error)).toBeInstanceOf(LockCapacityError);
    expect(await outer.run(() => locks.withLock('inner', () => 'done', { wait: 0 }))).toBe('done');
  }, 60_000);

  it('takes no further entry for readers of a key that this process already reads', async () => {
    const locks = await start();
    const first = await locks.acquire('page', { mode: 'shared' });
    await takeAll(locks, 'full', FREE);
    const readers = Array.from({ length: 20 }, () => locks.acquire('page', { mode: 'shared', wait: 0 }));
    expect((await Promise.all(readers)).every((lock) => lock.isHeld())).toBe(true);
    expect(first.isHeld()).toBe(true);
  }, 60_000);

  it('frees the entries of a lost connection, also for a caller that waits for one', async () => {
    const locks = await start();
    const { held: all } = await takeAll(locks, 'full', FREE);
    const waiting = locks.acquire('next', { wait: '1m' });
    await until(() => locks.admin.waiting().length === 1, 'the caller waits');
    await admin.query(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' LIMIT 1`);
    expect((await waiting).isHeld()).toBe(true);
    await until(() => all.every((lock: Lock) => !lock.isHeld()), 'the other locks are lost');
    expect((await takeAll(locks, 'again', MOST)).held).toHaveLength(FREE - 1);
  }, 60_000);
});

it('advisory locks of MySQL and MariaDB are not limited: the locks of one process block no other process', async () => {
  const server = await startMySqlOrMariaDb();
  try {
    const provider = new SqlAdvisoryLockProvider({ url: server.url, commandTimeout: '30s', sessionGuard: '10m' });
    const locks = new LockManager({ providers: { sql: provider }, shutdownGrace: 0 });
    await locks.start();
    const all = await Promise.all(Array.from({ length: 6_000 }, (_, index) => locks.acquire(`many:${index}`)));
    expect(all.every((lock) => lock.isHeld())).toBe(true);
    const others = new LockManager({ providers: { sql: new SqlAdvisoryLockProvider({ url: server.url }) } });
    await others.start();
    expect(await others.withLock('other', () => 'done', { wait: 0 })).toBe('done');
    await Promise.all([others.stop(), locks.stop()]);
  } finally {
    await server.stop();
  }
}, 120_000);
