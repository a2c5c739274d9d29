import { expect } from '@jest/globals';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DataSource } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockConfigError } from '../../lib/api/errors.js';
import {
  entityManagerOf,
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { AdvisoryLockBackend } from '../../lib/providers/sql/session-lock-backends.js';
import {
  hasMySql,
  type SqlServer,
  startGaleraNode,
  startMySqlOrMariaDb,
  startPgBouncer,
  startPostgres,
} from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { itUnless } from '../unless.js';
import {
  SqlAdvisoryLockProvider,
  sqlClientOf,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { LockProcesses, SqlBackend } from './sql-backend.js';

describe('a topology where two callers could hold a lock at the same time', () => {
  const servers: SqlServer[] = [];
  afterEach(async () => {
    for (const server of servers.splice(0).reverse()) await server.stop();
  });

  async function started(server: Promise<SqlServer>): Promise<SqlServer> {
    servers.push(await server);
    return server;
  }
  const sourceOf = ({ url }: SqlServer) => new DataSource({ type: new URL(url).protocol.slice(0, -1), url } as never);

  /**
   * Checks that the start fails with this message and leaves nothing behind, and succeeds with `allowUnsafeTopology`.
   */
  async function refusedWith(
    message: RegExp,
    server: SqlServer,
    providers = [TypeOrmRowLockProvider, TypeOrmVersionLockProvider, TypeOrmAdvisoryLockProvider],
  ): Promise<void> {
    for (const Provider of providers) {
      const provider = new Provider({ dataSource: sourceOf(server), synchronize: true });
      const locks = new LockManager({ providers: { sql: provider } });
      const start = locks.start();
      await expect(start).rejects.toBeInstanceOf(LockConfigError);
      await expect(start).rejects.toThrow(message);
      await expect(start).rejects.toThrow(/allowUnsafeTopology/);
      await locks.stop();
    }
    const provider = new TypeOrmAdvisoryLockProvider({ dataSource: sourceOf(server), allowUnsafeTopology: true });
    const locks = new LockManager({ providers: { sql: provider } });
    await locks.start();
    const [diagnostic] = await locks.admin.backend(AdvisoryLockBackend).diagnose();
    expect(diagnostic).toMatchObject({ severity: 'error', message: expect.stringMatching(message) });
    await (await locks.acquire('a')).release();
    await locks.stop();
  }

  itUnless(hasMySql() ? 'MySQL has no Galera' : undefined)(
    'rejects a Galera cluster node',
    async () => {
      await refusedWith(/Galera/, await started(startGaleraNode()));
    },
    120_000,
  );

  it('rejects a read-only MySQL or MariaDB, even for an account that may still write', async () => {
    const server = await started(startMySqlOrMariaDb());
    const root = await sourceOf(server).initialize();
    await root.query('SET GLOBAL read_only = ON');
    await root.query('CREATE TABLE proof (id INT)');
    await refusedWith(/read-only \(read_only\)/, server);
    const transactions = hasMySql() ? 'transaction_read_only' : 'tx_read_only';
    await root.query(`SET GLOBAL read_only = OFF, GLOBAL ${transactions} = ON`);
    await root.destroy();
    // MariaDB 11.1 and later use both names.
    await refusedWith(/read-only \((tx|transaction)_read_only\)/, server);
  }, 120_000);

  it('rejects a read-only Postgres database, a standby, and a transaction pooler', async () => {
    const server = await started(startPostgres());
    const root = await sourceOf(server).initialize();
    await root.query('ALTER DATABASE postgres SET default_transaction_read_only = on');
    await refusedWith(/default_transaction_read_only/, server);
    await root.query('ALTER DATABASE postgres RESET default_transaction_read_only');
    await root.destroy();
    const pooler = await started(startPgBouncer(server.port));
    // Clients share PgBouncer's server connections, so their state may look right by chance. The version lock needs no
    // session.
    const inSessions = [TypeOrmRowLockProvider, TypeOrmAdvisoryLockProvider];
    for (let round = 0; round < 10; round += 1) await refusedWith(/PgBouncer/, pooler, inSessions);
    await writeFile(join(server.folder, 'data/standby.signal'), '');
    await server.crash();
    await refusedWith(/standby/, server);
  }, 120_000);

  it('a COMMIT whose reply a session pooler did not receive has an unknown outcome', async () => {
    const server = await started(startPostgres());
    const wire = await startTcpProxy(server.port);
    const pooler = await started(startPgBouncer(wire.port, 'session'));
    const root = await sourceOf(server).initialize();
    for (const sql of [
      'CREATE TABLE written (id INT)',
      `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'`,
      `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON written DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()`,
    ]) {
      await root.query(sql);
    }
    const dataSource = await sourceOf(pooler).initialize();
    const provider = new TypeOrmRowLockProvider({ dataSource, synchronize: true, allowUnsafeTopology: true });
    const locks = new LockManager({ providers: { sql: provider } });
    await locks.start();
    const task = locks.withLock('a', (lock) => entityManagerOf(lock).query('INSERT INTO written VALUES (1)'));
    const outcome = task.catch((error: unknown) => error);
    const found = async (sql: string) => (await root.query<unknown[]>(sql)).length > 0;
    while (!(await found(`SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query = 'COMMIT'`)));
    wire.loseReplies();
    while (!(await found('SELECT 1 FROM written')));
    wire.cut();
    expect(await outcome).toMatchObject({ reason: 'commit-unknown' });
    wire.passReplies();
    await locks.stop();
    await Promise.all([dataSource.destroy(), root.destroy()]);
    await wire.close();
  }, 120_000);

  it('keeps the connections of one provider on one server, and follows the address to another server', async () => {
    const [first, second] = await Promise.all([started(startMySqlOrMariaDb()), started(startMySqlOrMariaDb())]);
    const wire = await startTcpProxy(first.port);
    const dataSource = sourceOf({ ...first, url: first.url.replace(String(first.port), String(wire.port)) });
    const managerOf = (source: DataSource) => {
      const provider = new TypeOrmAdvisoryLockProvider({ dataSource: source });
      return new LockManager({ providers: { sql: provider }, shutdownGrace: 0 });
    };
    const [locks, others] = [managerOf(dataSource), managerOf(sourceOf(first))];
    try {
      await Promise.all([locks.start(), others.start()]);
      // The first connection is in use, so a waiter opens another one.
      await locks.acquire('held');
      await others.acquire('a');
      const causes: unknown[] = [];
      locks.events.on('unavailable', ({ cause }) => causes.push(cause));
      wire.leadTo(second.port);
      // The control connection is closed, so the retry opens all connections again.
      await (await locks.acquire('a')).release();
      expect(causes).toContainEqual(
        expect.objectContaining({ message: expect.stringMatching(/different servers/) as unknown }),
      );
    } finally {
      await Promise.all([locks.stop(), others.stop()]);
      await wire.close();
    }
  }, 120_000);
});

describe('a MySQL or MariaDB behind a proxy with its own connection ids', () => {
  const processes = new LockProcesses();
  const backend = SqlBackend.forTests('mariadb');
  let wire: TcpProxy;

  beforeAll(async () => {
    // Changes the id in the server's first packet, which follows its version.
    const withOtherId = (text: string) =>
      text.replace(
        /^([^]{3}\0\n[^\0]*\0)([^])/,
        (_, before: string, id: string) => before + String.fromCharCode(id.charCodeAt(0) ^ 128),
      );
    wire = await startTcpProxy(backend.server.port, { rewrite: withOtherId });
  });
  afterAll(() => wire.close());

  type Kind = typeof SqlRowLockProvider | typeof SqlAdvisoryLockProvider | typeof SqlVersionLockProvider;
  const start = (Provider: Kind, options: object = {}) => {
    const url = new URL(backend.server.url);
    url.port = String(wire.port);
    return processes.start(new Provider({ url: url.href, synchronize: true, ...options }));
  };

  it.each([SqlRowLockProvider, SqlAdvisoryLockProvider])('is refused by %p', async (Provider) => {
    await expect(start(Provider)).rejects.toBeInstanceOf(LockConfigError);
    await expect(start(Provider)).rejects.toThrow(/behind a proxy.*or use the version lock/);
  });

  it("ends no connection by an id that may be another client's", async () => {
    await (await (await start(SqlVersionLockProvider)).acquire('a')).release();
    const locks = await start(SqlRowLockProvider, { allowUnsafeTopology: true });
    const kills = async () => {
      const [row] = await backend.admin.query<{ Value: string }[]>(`SHOW GLOBAL STATUS LIKE 'Com_kill'`);
      return Number(row!.Value);
    };
    const before = await kills();
    const lock = await locks.acquire('a');
    await sqlClientOf<{ promise(): { query(sql: string): Promise<unknown> } }>(lock).promise().query('COMMIT');
    expect(await lock.release()).toBe('lost');
    await (await locks.acquire('a')).release();
    expect(await kills()).toBe(before);
  });
});

describe('PgBouncer in transaction mode', () => {
  let backend: SqlBackend;
  const processes = new LockProcesses();

  beforeAll(async () => {
    backend = await SqlBackend.pooled();
  }, 60_000);
  afterAll(() => backend.stop());

  const leases = () => processes.start(new SqlVersionLockProvider({ url: backend.server.url, synchronize: true }));

  it('a version lock admits one process at a time, and leaves no setting on shared connections', async () => {
    const settings = () =>
      backend.admin.query<object[]>(
        `SELECT current_setting('lock_timeout') AS wait, current_setting('idle_session_timeout') AS idle, ` +
          `current_setting('statement_timeout') AS statement, (SELECT count(*) FROM pg_prepared_statements) AS prepared`,
      );
    const [before] = await settings();
    const fleet = await Promise.all([leases(), leases(), leases()]);
    let inside = 0;
    let most = 0;
    await Promise.all(
      fleet.flatMap((locks) =>
        Array.from({ length: 20 }, (_, index) =>
          locks.withLock(index % 2 === 0 ? 'one' : `own-${index}`, async ({ key }) => {
            if (key !== 'one') return;
            most = Math.max(most, (inside += 1));
            await settings();
            inside -= 1;
          }),
        ),
      ),
    );
    expect(most).toBe(1);
    // Uses each of the pool's few connections in turn.
    for (const seen of await Promise.all(Array.from({ length: 9 }, settings))) expect(seen).toEqual([before]);
  });

  it.each([
    ['row', SqlRowLockProvider],
    ['advisory', SqlAdvisoryLockProvider],
  ])('a %s lock does not start, and its error suggests the version lock', async (_, Provider) => {
    const start = processes.start(new Provider({ url: backend.server.url, synchronize: true }));
    await expect(start).rejects.toBeInstanceOf(LockConfigError);
    await expect(start).rejects.toThrow(/PgBouncer.*or use the version lock/);
  });

  it("rejects an account whose transactions are not READ COMMITTED, since locks can't set the isolation level", async () => {
    await backend.admin.query('CREATE DATABASE strict');
    await backend.admin.query(`ALTER DATABASE strict SET default_transaction_isolation = 'repeatable read'`);
    const url = new URL('/strict', backend.server.url).href;
    const start = processes.start(new SqlVersionLockProvider({ url, synchronize: true }));
    await expect(start).rejects.toThrow(/repeatable read.*default_transaction_isolation/);
  });

  it('a version lock lends no connection', async () => {
    const locks = await leases();
    await using lock = await locks.acquire('a');
    expect(() => sqlClientOf(lock)).toThrow(LockConfigError);
  });
});
