import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { Lock } from '../../lib/api/lock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { ServerFacts } from '../../lib/providers/sql/connection/dialect.js';
import { postgres } from '../../lib/providers/sql/connection/postgres.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider } from '../../lib/providers/sql/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startPgBouncer } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { SqlBackend, type SqlType } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

const PROCESS = new URL('lock-process.mjs', import.meta.url).pathname;
const KINDS = [SqlRowLockProvider, SqlAdvisoryLockProvider];
type Kind = (typeof KINDS)[number];

const SESSIONS = {
  mariadb: `SELECT count(*) AS n FROM information_schema.processlist WHERE command <> 'Daemon'`,
  postgres: `SELECT count(*) AS n FROM pg_stat_activity WHERE backend_type = 'client backend'`,
};

/** Each manager is a separate process to the server. */
class Fleet {
  readonly #started: LockManager[] = [];

  constructor(private readonly url: () => string) {}

  async start(Provider: Kind, options: object = {}, url = this.url()): Promise<LockManager> {
    const provider = new Provider({ url, synchronize: true, ...options });
    const locks = new LockManager({ providers: { sql: provider }, defaults: { wait: '10m' }, shutdownGrace: 0 });
    this.#started.push(locks);
    await locks.start();
    return locks;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#started.splice(0).map((locks) => locks.stop()));
  }
}

/** Resolves when a caller waits. */
async function standInLine(
  locks: LockManager,
  key: string,
): Promise<{ readonly lock: Promise<Lock>; hasLock: boolean }> {
  const waits = new Promise<void>((resolve) => locks.events.once('waiting', () => resolve()));
  const waiter = { lock: locks.acquire(key), hasLock: false };
  waiter.lock.then(
    () => (waiter.hasLock = true),
    () => undefined,
  );
  await waits;
  return waiter;
}

describe.each<SqlType>(['postgres', 'mariadb'])('waiters on %s', (type) => {
  let backend: SqlBackend;
  let library: CompiledLibrary;
  const fleet = new Fleet(() => backend.server.url);
  const wires: TcpProxy[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
    library = await compileLibrary();
  }, 60_000);
  afterEach(async () => {
    await fleet.stop();
    await Promise.all(wires.splice(0).map((wire) => wire.close()));
  });
  afterAll(async () => {
    await library.remove();
    await backend.stop();
  });

  const sessions = async () => Number((await backend.admin.query<{ n: unknown }[]>(SESSIONS[type]))[0]!.n);

  it.each(KINDS)(
    'leave the server soon after their processes are killed: %p',
    async (Provider) => {
      const held = await (await fleet.start(Provider)).acquire('killed');
      const before = await sessions();
      const children = Array.from({ length: 4 }, () =>
        fork(PROCESS, [library.folder, Provider.name, backend.server.url, 'killed'], { stdio: 'inherit' }),
      );
      await Promise.all(children.map((child) => once(child, 'message')));
      expect(await sessions()).toBeGreaterThanOrEqual(before + children.length);
      for (const child of children) child.kill('SIGKILL');
      await until(async () => (await sessions()) <= before, 'none of their sessions is left', 30_000);
      expect(held.isHeld()).toBe(true);
      await held.release();
    },
    90_000,
  );

  // If the server grants the lock to waiters that don't respond, their guards add up.
  it.each(KINDS)(
    'block a key for much less than their guards when they are cut off, and get their full guards once they hold it: %p',
    async (Provider) => {
      const first = await (await fleet.start(Provider)).acquire('guard');
      // With a heartbeat every 20 s.
      const second = await standInLine(await fleet.start(Provider, { sessionGuard: '60s' }), 'guard');
      await first.release();
      const confirmed = await second.lock;

      const held = await (await fleet.start(Provider)).acquire('cut');
      for (let index = 0; index < 3; index += 1) {
        const wire = await startTcpProxy(backend.server.port);
        wires.push(wire);
        const url = backend.server.url.replace(`:${backend.server.port}`, `:${wire.port}`);
        await standInLine(await fleet.start(Provider, { sessionGuard: '60s' }, url), 'cut');
      }
      const others = await fleet.start(Provider);
      const healthy = await standInLine(others, 'cut');
      const before = await sessions();
      for (const wire of wires) wire.freeze();
      await held.release();
      await until(() => healthy.hasLock, 'the waiter that is not cut off holds the lock', 40_000);
      await (await healthy.lock).release();

      // The server itself measures that a waiter doesn't confirm its grant within 3 s, and frees the lock.
      await until(
        async () => (await sessions()) < before,
        'the server has ended the session of a waiter that was cut off',
      );
      expect(confirmed.isHeld()).toBe(true);
      expect(await others.tryAcquire('guard')).toBeNull();
      expect(await confirmed.release()).toBe('released');
    },
    90_000,
  );

  it('keep waiting if an operator cancels their statement, and leak no lock if that happens during the grant', async () => {
    for (const Provider of KINDS) {
      const [first, second, third] = await Promise.all([1, 2, 3].map(() => fleet.start(Provider)));
      for (let round = 0; round < 30; round += 1) {
        const key = `cancelled:${round}`;
        const held = await first!.acquire(key);
        const waiter = await standInLine(second!, key);
        // The cancel arrives before, during or after the grant.
        await Promise.all([held.release(), backend.interruptWaiters(), backend.interruptWaiters()]);
        await (await waiter.lock).release();
        const lock = await third!.tryAcquire(key);
        expect(lock).not.toBeNull();
        await lock!.release();
      }
    }
  }, 90_000);
});

describe('waiters on Postgres', () => {
  let backend: SqlBackend;
  const fleet = new Fleet(() => backend.server.url);

  beforeAll(async () => {
    backend = await SqlBackend.start('postgres');
    await backend.admin.query('CREATE TABLE city (name text)');
  }, 60_000);
  afterEach(() => fleet.stop());
  afterAll(() => backend.stop());

  /** Resolves when a session has waited in this many slices, each of which is a statement. */
  async function untilSliced(slices: number): Promise<void> {
    const seen = new Set<string>();
    await until(async () => {
      const waiting = `SELECT query_start::text AS slice FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
      for (const { slice } of await backend.admin.query<{ slice: string }[]>(waiting)) seen.add(slice);
      return seen.size >= slices;
    }, `it has waited in ${slices} slices`);
  }

  it.each(KINDS)(
    "do not block CREATE INDEX CONCURRENTLY or write to the server's log: %p",
    async (Provider) => {
      const held = await (await fleet.start(Provider)).acquire('migration');
      const waiter = await standInLine(await fleet.start(Provider), 'migration');
      const log = backend.server.output;
      await untilSliced(3);
      await backend.admin.query('CREATE INDEX CONCURRENTLY IF NOT EXISTS city_name ON city (name)');
      await backend.admin.query('DROP INDEX CONCURRENTLY city_name');
      expect(waiter.hasLock).toBe(false);
      await held.release();
      await (await waiter.lock).release();
      expect(backend.server.output).toBe(log);
    },
    60_000,
  );

  it('send the same SQL for all keys, since pg_stat_statements counts each distinct text separately', () => {
    const limits = { guard: 1_000, lockWait: 100 };
    const blocks = ['1', '2'].map((name) => {
      const [sql] = postgres.advisory.awaitLock(name, 'exclusive', limits, { catchesErrors: true } as ServerFacts);
      return sql.split('; ').filter((statement) => statement.startsWith('DO'));
    });
    expect(blocks[0]).toHaveLength(1);
    expect(blocks[0]).toEqual(blocks[1]);
  });

  it('get the row of a process that is killed while its statement runs', async () => {
    const library = await compileLibrary();
    const locks = await fleet.start(SqlRowLockProvider);
    const child = fork(PROCESS, [library.folder, 'SqlRowLockProvider', backend.server.url, 'work', 'works']);
    await once(child, 'message');
    const waiter = await standInLine(locks, 'work');
    child.kill('SIGKILL');
    await until(() => waiter.hasLock, 'the server has noticed the kill', 40_000);
    await library.remove();
  }, 60_000);

  it.each(KINDS)('need no plpgsql: %p', async (Provider) => {
    const url = new URL(backend.server.url);
    url.username = 'plain';
    await backend.admin.query('CREATE ROLE plain LOGIN');
    await backend.admin.query('GRANT CREATE ON SCHEMA public TO plain');
    await backend.admin.query('REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC');
    try {
      const table = { table: `locks_of_${Provider.name.toLowerCase()}` };
      const [first, second] = [
        await fleet.start(Provider, table, url.href),
        await fleet.start(Provider, table, url.href),
      ];
      const held = await first.acquire('plain');
      const waiter = await standInLine(second, 'plain');
      await untilSliced(2);
      expect(waiter.hasLock).toBe(false);
      await held.release();
      await (await waiter.lock).release();
    } finally {
      await backend.admin.query('GRANT USAGE ON LANGUAGE plpgsql TO PUBLIC');
      await fleet.stop();
      await backend.admin.query('DROP OWNED BY plain');
      await backend.admin.query('DROP ROLE plain');
    }
  });

  it.each(KINDS)(
    'leave no session behind PgBouncer when their wait ends: %p',
    async (Provider) => {
      const pooler = await startPgBouncer(backend.server.port, 'session');
      try {
        const options = { allowUnsafeTopology: true };
        const held = await (await fleet.start(Provider)).acquire('pooled');
        const locks = await fleet.start(Provider, options, pooler.url);
        for (let round = 0; round < 5; round += 1) expect(await locks.tryAcquire('pooled', { wait: 100 })).toBeNull();
        const waiting = `SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
        const count = async () => Number((await backend.admin.query<{ n: unknown }[]>(waiting))[0]!.n);
        await until(async () => (await count()) === 0, 'no session waits on the server', 30_000);
        expect(held.isHeld()).toBe(true);
        await fleet.stop();
      } finally {
        await pooler.stop();
      }
    },
    60_000,
  );
});
