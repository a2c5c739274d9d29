import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource } from 'typeorm';
import type { BackendContext, CasStore, LockProvider } from '../../lib/api/lock-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockManagerOptions } from '../../lib/core/lock-manager-options.js';
import { advisoryLockNumber, userLockName } from '../../lib/providers/sql/advisory/advisory-name.js';
import { rowNameOf } from '../../lib/providers/sql/table/lock-name.js';
import { createTableSql } from '../../lib/providers/sql/table/lock-schema.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  type TypeOrmSessionLockOptions,
} from '../../lib/providers/typeorm/index.js';
import {
  SqlAdvisoryLockProvider,
  type SqlAdvisoryLockProviderOptions,
  SqlRowLockProvider,
  type SqlRowLockProviderOptions,
  SqlVersionLockProvider,
  type SqlVersionLockProviderOptions,
} from '../../lib/providers/sql/index.js';
import { SqlBackend as SqlLockBackend } from '../../lib/providers/sql/sql-backend.js';
import type { ProviderHarness } from '../../lib/provider-kit/index.js';
import { capabilitiesOf } from '../backend-context.js';
import { externalServer, wireTo } from '../servers/external-server.js';
import { type SqlServer, startMySqlOrMariaDb, startPgBouncer, startPostgres } from '../servers/sql-server.mjs';
import type { TcpProxy } from '../servers/tcp-proxy.js';

export type SqlType = 'mariadb' | 'postgres';

export const TABLE = 'distributed_lock';

// A slow server must not cost a session, and the guard must not detect a loss that should be detected without it. Tests
// that wait for the end of a guard or of a statement set their own values.
const SESSION_DEFAULTS = { synchronize: true, sessionGuard: '10m', commandTimeout: '10s' };

/** The numbers from 1 on, as rows (n). */
export const NUMBERS = {
  mariadb: (rows: number) =>
    `SELECT n FROM JSON_TABLE(CONCAT('[0', REPEAT(',0', ${rows - 1}), ']'), '$[*]' COLUMNS (n FOR ORDINALITY)) AS numbers`,
  postgres: (rows: number) => `SELECT n FROM generate_series(1, ${rows}) AS n`,
};

// InnoDB refreshes its transaction tables only if no query has read them for 100 ms.
const INNODB_REFRESH = 150;

const MARIADB = {
  // Sessions that wait in the queue before us block us as well.
  holders: `SELECT DISTINCT b.trx_mysql_thread_id AS id FROM information_schema.innodb_lock_waits w
    JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id
    JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id
    WHERE r.trx_mysql_thread_id = ? AND b.trx_state <> 'LOCK WAIT'`,
  waiters: `SELECT COUNT(*) AS n FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'`,
  waiterIds: `SELECT id FROM information_schema.processlist WHERE state = 'User lock' OR info LIKE '%FOR UPDATE'`,
  own: 'SELECT CONNECTION_ID() AS id',
  kill: (id: unknown) => `KILL CONNECTION ${String(id)}`,
  interrupt: (id: unknown) => `KILL QUERY ${String(id)}`,
  connection: 'SELECT 1 FROM information_schema.processlist WHERE id = ?',
  transactions: 'SELECT COUNT(*) AS n FROM information_schema.innodb_trx',
  value: '?',
  /** The connections that hold the advisory lock. */
  advisoryHolders: 'SELECT IS_USED_LOCK(?) AS id',
  advisoryName: (namespace: string, key: string, database: string) => userLockName(database, namespace, key),
};

/** An operator's actions, in each database's own SQL. */
const OPERATORS = {
  mariadb: MARIADB,
  mysql: {
    ...MARIADB,
    holders: `SELECT DISTINCT b.trx_mysql_thread_id AS id FROM performance_schema.data_lock_waits w
      JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_engine_transaction_id
      JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_engine_transaction_id
      WHERE r.trx_mysql_thread_id = ? AND b.trx_state <> 'LOCK WAIT'`,
  },
  postgres: {
    // A waiter before us in the queue also blocks us, and may be the only one that does. The holder is at the end of
    // the chain.
    holders: `WITH RECURSIVE blocker (id) AS (
        SELECT unnest(pg_blocking_pids($1)) UNION SELECT unnest(pg_blocking_pids(id)) FROM blocker)
      SELECT id FROM blocker WHERE cardinality(pg_blocking_pids(id)) = 0`,
    waiters: `SELECT COUNT(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'`,
    waiterIds: `SELECT pid AS id FROM pg_stat_activity WHERE wait_event_type = 'Lock'`,
    own: 'SELECT pg_backend_pid() AS id',
    kill: (id: unknown) => `SELECT pg_terminate_backend(${String(id)})`,
    interrupt: (id: unknown) => `SELECT pg_cancel_backend(${String(id)})`,
    connection: 'SELECT 1 FROM pg_stat_activity WHERE pid = $1',
    transactions: `SELECT COUNT(*) AS n FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'`,
    value: '$1',
    advisoryHolders: `SELECT pid AS id FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
      AND (classid::bigint << 32) | objid::bigint = $1::bigint`,
    advisoryName: advisoryLockNumber,
  },
};

const PRIVILEGES = `SELECT, INSERT, UPDATE, DELETE ON ${TABLE}`;

/** A real database with an operator's connection, and proxies that can be cut. */
export class SqlBackend {
  readonly #wires = new Map<LockProvider, TcpProxy>();
  /** The keys of advisory lock requests by namespace, because the names on the server reveal neither. */
  readonly #advisoryKeys = new Map<string, Set<string>>();
  /** The account of each provider, if each has its own. */
  readonly #accounts = new Map<LockProvider, string>();
  /** The end of the last privilege change, because Postgres fails one of two concurrent changes. */
  #changed: Promise<unknown> = Promise.resolve();

  /** Whether MySQL replaces MariaDB is known only at run time. */
  type!: SqlType | 'mysql';
  server!: SqlServer;
  admin!: DataSource;

  private constructor(private hasAccounts = false) {}

  /**
   * A server for the tests of one `describe`.
   * @param options For MariaDB, or for the MySQL that replaces it if LOCK_TEST_ROOT has one.
   */
  static forTests(type: SqlType, options?: readonly string[]): SqlBackend {
    const backend = new SqlBackend();
    beforeAll(async () => backend.#use(await startServer(type, options)), 60_000);
    afterAll(() => backend.stop());
    return backend;
  }

  static async start(type: SqlType): Promise<SqlBackend> {
    return SqlBackend.#on(await startServer(type));
  }

  /**
   * On the server that the environment names, or on our own. `mysql:` and `mariadb:` say which of the two it is. Each
   * provider has its own account, which can lose its privileges.
   */
  static async forContract(type: SqlType): Promise<SqlBackend> {
    const server = externalServer(type === 'mariadb' ? 'LOCK_TEST_MYSQL_URL' : 'LOCK_TEST_POSTGRES_URL');
    const backend = server ? await SqlBackend.#on(server) : await SqlBackend.start(type);
    const { admin } = backend;
    const [row] = await admin.query<{ version: string }[]>('SELECT version() AS version');
    if (server) console.log(`on ${row!.version}`);
    await admin.query(createTableSql(type === 'mariadb' ? 'mysql' : 'postgres', TABLE));
    if (type === 'mariadb') {
      // In a database named `test`, every account may do everything.
      await admin.query(`DELETE FROM mysql.db WHERE User IN ('', 'PUBLIC')`);
      await admin.query('FLUSH PRIVILEGES');
    }
    backend.hasAccounts = true;
    return backend;
  }

  /** On Postgres, behind a pooler that runs each transaction on any of its connections. */
  static async pooled(): Promise<SqlBackend> {
    const postgres = await startPostgres();
    const pooler = await startPgBouncer(postgres.port);
    const stop = async () => {
      await pooler.stop();
      await postgres.stop();
    };
    return SqlBackend.#on({ ...pooler, stop });
  }

  static async #on(server: SqlServer): Promise<SqlBackend> {
    const backend = new SqlBackend();
    await backend.#use(server);
    return backend;
  }

  async #use(server: SqlServer): Promise<void> {
    this.server = server;
    this.type = new URL(server.url).protocol.slice(0, -1) as SqlBackend['type'];
    // Connections that open and close by themselves would look like a provider's.
    const extra = this.type === 'postgres' ? { idleTimeoutMillis: 0 } : {};
    this.admin = await dataSource(this.type, server.url, { extra }).initialize();
  }

  /** The application's own DataSource, not initialized. */
  source(options: object = {}, port = this.server.port): DataSource {
    const url = new URL(this.server.url);
    url.port = String(port);
    return dataSource(this.type, url.toString(), options);
  }

  /** A provider with its own proxy. */
  provider(options: Partial<TypeOrmSessionLockOptions> = {}): Promise<TypeOrmRowLockProvider> {
    return this.wired((dataSource) => new TypeOrmRowLockProvider({ ...SESSION_DEFAULTS, dataSource, ...options }));
  }

  /** A provider of advisory locks with its own proxy. */
  advisoryProvider(options: Partial<TypeOrmSessionLockOptions> = {}): Promise<TypeOrmAdvisoryLockProvider> {
    return this.wired((dataSource) =>
      this.#observed(new TypeOrmAdvisoryLockProvider({ ...SESSION_DEFAULTS, dataSource, ...options })),
    );
  }

  /** Records the requested keys. */
  #observed<P extends LockProvider>(provider: P): P {
    const createBackend = provider.createBackend.bind(provider);
    provider.createBackend = (context: BackendContext) => {
      const backend = createBackend(context);
      const acquire = backend.acquire.bind(backend);
      backend.acquire = (request) => {
        const { namespace } = context;
        this.#advisoryKeys.set(namespace, (this.#advisoryKeys.get(namespace) ?? new Set()).add(request.key));
        return acquire(request);
      };
      return backend;
    };
    return provider;
  }

  /** A provider of a plain driver with its own proxy. */
  rows(options: Partial<SqlRowLockProviderOptions> = {}): Promise<SqlRowLockProvider> {
    return this.#wiredByUrl((url) => new SqlRowLockProvider({ ...SESSION_DEFAULTS, ...options, url } as never));
  }

  leases(options: Partial<SqlVersionLockProviderOptions> = {}): Promise<SqlVersionLockProvider> {
    return this.#wiredByUrl((url) => new SqlVersionLockProvider({ synchronize: true, ...options, url } as never));
  }

  advisory(options: Partial<SqlAdvisoryLockProviderOptions> = {}): Promise<SqlAdvisoryLockProvider> {
    return this.#wiredByUrl((url) =>
      this.#observed(new SqlAdvisoryLockProvider({ ...SESSION_DEFAULTS, ...options, url } as never)),
    );
  }

  /** Any provider, with its own proxy. */
  async wired<P extends LockProvider>(make: (dataSource: DataSource) => P): Promise<P> {
    return this.#wiredByUrl((url) => make(dataSource(this.type, url)));
  }

  async #wiredByUrl<P extends LockProvider>(make: (url: string) => P): Promise<P> {
    const { wire, url } = await wireTo(this.server.url);
    const account = `kit_${wire.port}`;
    const address = new URL(url);
    if (this.hasAccounts) {
      await this.#change(
        this.type === 'postgres'
          ? `CREATE ROLE ${account} LOGIN PASSWORD 'secret'`
          : `CREATE USER ${account} IDENTIFIED BY 'secret'`,
        `GRANT ${PRIVILEGES} TO ${account}`,
      );
      [address.username, address.password] = [account, 'secret'];
    }
    const provider = make(address.toString());
    this.#wires.set(provider, wire);
    this.#accounts.set(provider, account);
    return provider;
  }

  /** Revokes the privileges of the provider's account. */
  refuse(provider: LockProvider): Promise<void> {
    return this.#change(`REVOKE ${PRIVILEGES} FROM ${this.#accounts.get(provider) ?? ''}`);
  }

  /** Ends {@link refuse} and the faults of the provider's proxy. */
  async restore(provider: LockProvider): Promise<void> {
    this.wireOf(provider)?.thaw();
    if (this.hasAccounts) await this.#change(`GRANT ${PRIVILEGES} TO ${this.#accounts.get(provider) ?? ''}`);
  }

  async #change(...statements: string[]): Promise<void> {
    const change = this.#changed.then(async () => {
      for (const sql of statements) await this.admin.query(sql);
    });
    this.#changed = change.catch(() => undefined);
    await change;
  }

  /** Returns the connections that hold the advisory lock of the key. */
  async advisoryHolders(namespace: string, key: string): Promise<number[]> {
    const { advisoryHolders, advisoryName } = OPERATORS[this.type];
    const rows = await this.admin.query<{ id: unknown }[]>(advisoryHolders, [
      advisoryName(namespace, key, String(this.admin.options.database)),
    ]);
    return rows.filter(({ id }) => id !== null).map(({ id }) => Number(id));
  }

  /** Ends the connection that holds the advisory lock of the key. */
  async revokeAdvisory(namespace: string, key: string): Promise<void> {
    const holders = await this.advisoryHolders(namespace, key);
    for (const id of holders) await this.admin.query(OPERATORS[this.type].kill(id));
    const isLeft = async () => (await this.advisoryHolders(namespace, key)).some((id) => holders.includes(id));
    while (await isLeft()) await sleep(1);
  }

  /** Returns the number of advisory locks held in the namespace. */
  async advisoryLocks(namespace: string): Promise<number> {
    let count = 0;
    // One by one, on one connection: more connections would look like some that a provider left open.
    for (const key of this.#advisoryKeys.get(namespace) ?? []) {
      count += (await this.advisoryHolders(namespace, key)).length;
    }
    return count;
  }

  wireOf(provider: LockProvider): TcpProxy | undefined {
    return this.#wires.get(provider);
  }

  /** Ends the connection that holds the row of the key, and none that waits for it. */
  async revoke(namespace: string, key: string): Promise<void> {
    const operator = OPERATORS[this.type];
    const probe = this.admin.createQueryRunner();
    try {
      const [self] = (await probe.query(operator.own)) as { id: unknown }[];
      await probe.startTransaction();
      const sql = `SELECT 1 FROM ${TABLE} WHERE name = ${operator.value} FOR UPDATE`;
      const waiting = probe.query(sql, [rowNameOf(namespace, key)]).catch(() => undefined);
      let holders: { id: unknown }[] = [];
      while (holders.length === 0) {
        await sleep(INNODB_REFRESH);
        holders = await this.admin.query(operator.holders, [self!.id]);
      }
      for (const { id } of holders) await this.admin.query(operator.kill(id));
      const isLeft = async (id: unknown) => (await this.admin.query<unknown[]>(operator.connection, [id])).length > 0;
      for (const { id } of holders) while (await isLeft(id)) await sleep(1);
      // The row now belongs to the next in the queue, which may keep it for any time.
      await this.admin.query(operator.interrupt(self!.id));
      await waiting;
      await probe.rollbackTransaction();
    } finally {
      await probe.release();
    }
  }

  /** Cancels the statements that currently wait for a lock. */
  async interruptWaiters(): Promise<void> {
    const { waiterIds, interrupt } = OPERATORS[this.type];
    const waiters = await this.admin.query<{ id: unknown }[]>(waiterIds);
    // A session that no longer waits has no statement, or another one.
    for (const { id } of waiters) await this.admin.query(interrupt(id)).catch(() => undefined);
  }

  /** Resolves when this many sessions wait for a row. */
  async untilWaiting(sessions: number): Promise<void> {
    const { waiters } = OPERATORS[this.type];
    const count = async () => Number((await this.admin.query<{ n: unknown }[]>(waiters))[0]!.n);
    while ((await count()) < sessions) await sleep(INNODB_REFRESH);
  }

  /** Returns the number of locked rows in the namespace. */
  async lockedRows(namespace: string): Promise<number> {
    const { value } = OPERATORS[this.type];
    const where = `FROM ${TABLE} WHERE name LIKE ${value}`;
    return this.admin.transaction(async (manager) => {
      const all = await manager.query<unknown[]>(`SELECT 1 ${where}`, [`${namespace}:%`]);
      const free = await manager.query<unknown[]>(`SELECT 1 ${where} FOR UPDATE SKIP LOCKED`, [`${namespace}:%`]);
      return all.length - free.length;
    });
  }

  /** Returns the number of open transactions on the server. */
  async transactions(): Promise<number> {
    if (this.type !== 'postgres') await sleep(INNODB_REFRESH);
    const [row] = await this.admin.query<{ n: unknown }[]>(OPERATORS[this.type].transactions);
    return Number(row!.n);
  }

  /** Like {@link transactions}, as soon as there are `count`, or after 15 s. */
  async untilTransactions(count: number): Promise<number> {
    for (const until = Date.now() + 15_000; Date.now() < until;) {
      if ((await this.transactions()) === count) return count;
      await sleep(10);
    }
    return this.transactions();
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#wires.values()].map((wire) => wire.close()));
    await this.admin.destroy();
    await this.server.stop();
  }
}

/** What a test treats as processes: each acquires its locks with its own provider. They end with the test. */
export class LockProcesses {
  readonly #managers: LockManager[] = [];

  constructor() {
    afterEach(() => this.stop());
  }

  async start(provider: LockProvider, options: Partial<LockManagerOptions> = {}): Promise<LockManager> {
    const locks = new LockManager({
      providers: { sql: provider },
      namespace: 'test',
      // A waiter is granted the lock within milliseconds, and within seconds on a busy machine.
      defaults: { wait: '1m' },
      shutdownGrace: 0,
      ...options,
    });
    this.#managers.push(locks);
    await locks.start();
    return locks;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#managers.splice(0).map((manager) => manager.stop()));
  }
}

/** Returns the compare-and-set store of an application whose default provider is on a database server. */
export function casStoreOf(locks: LockManager): CasStore {
  return locks.admin.backend(SqlLockBackend).casStore;
}

/** The conformance kit's harness for row locks on this database. */
export function rowLockHarness(type: SqlType, backend: () => SqlBackend): ProviderHarness {
  return {
    ...sessionHarness(backend),
    capabilities: capabilitiesOf(new SqlRowLockProvider({ url: `${type}://nowhere:1/test`, fencing: true })),
    create: () => backend().rows({ ...CALM, fencing: true, maxConnections: 20 }),
    remainingLocks: (namespace) => backend().lockedRows(namespace),
  };
}

/** The conformance kit's harness for advisory locks on this database. */
export function advisoryLockHarness(type: SqlType, backend: () => SqlBackend): ProviderHarness {
  const common = sessionHarness(backend);
  return {
    ...common,
    capabilities: capabilitiesOf(new SqlAdvisoryLockProvider({ url: `${type}://nowhere:1/test`, fencing: true })),
    create: () => backend().advisory({ ...CALM, fencing: true, maxConnections: 20 }),
    faults: { ...common.faults, revoke: (namespace, key) => backend().revokeAdvisory(namespace, key) },
    remainingLocks: (namespace) => backend().advisoryLocks(namespace),
  };
}

/** A busy machine replies late, which must not look like an outage. */
const CALM = { sessionGuard: '8s', commandTimeout: '6s' };

function sessionHarness(backend: () => SqlBackend) {
  return {
    // The session guard.
    lease: 8_000,
    records: true,
    faults: {
      revoke: (namespace: string, key: string) => backend().revoke(namespace, key),
      cutOff: async (provider: LockProvider) => backend().wireOf(provider)?.freeze(),
      silence: async (provider: LockProvider) => backend().wireOf(provider)?.freeze(),
      refuse: (provider: LockProvider) => backend().refuse(provider),
      restore: (provider: LockProvider) => backend().restore(provider),
    },
  };
}

function startServer(type: SqlType, options: readonly string[] = []): Promise<SqlServer> {
  return type === 'mariadb' ? startMySqlOrMariaDb({ options }) : startPostgres();
}

function dataSource(type: SqlBackend['type'], address: string, options: object = {}): DataSource {
  const { hostname: host, port, username, password, pathname } = new URL(address);
  const database = pathname.slice(1);
  return new DataSource({ type, host, port: Number(port), username, password, database, ...options });
}
