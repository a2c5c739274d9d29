import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource } from 'typeorm';
import type { LockProvider } from '../../lib/engine/lock-provider.js';
import { rowNameOf } from '../../lib/providers/typeorm/lock-name.js';
import { TypeOrmRowLockProvider, type TypeOrmRowLockProviderOptions } from '../../lib/providers/typeorm/index.js';
import type { ProviderHarness } from '../../lib/testing/index.js';
import { type SqlServer, startMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

export type SqlType = 'mariadb' | 'postgres';

export const TABLE = 'distributed_lock';

// InnoDB refreshes its tables of transactions only when nobody has looked at them for 100 ms.
const INNODB_REFRESH = 150;

/** What an operator does on a database, in its own words. */
const OPERATORS = {
  mariadb: {
    blockers: `SELECT DISTINCT b.trx_mysql_thread_id AS id FROM information_schema.innodb_lock_waits w
      JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id
      JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id WHERE r.trx_mysql_thread_id = ?`,
    own: 'SELECT CONNECTION_ID() AS id',
    kill: (id: unknown) => `KILL CONNECTION ${String(id)}`,
    transactions: 'SELECT COUNT(*) AS n FROM information_schema.innodb_trx',
    value: '?',
  },
  postgres: {
    blockers: 'SELECT unnest(pg_blocking_pids($1)) AS id',
    own: 'SELECT pg_backend_pid() AS id',
    kill: (id: unknown) => `SELECT pg_terminate_backend(${String(id)})`,
    transactions: `SELECT COUNT(*) AS n FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'`,
    value: '$1',
  },
};

/** A real database with an operator's connection, and wires that can be cut. */
export class SqlBackend {
  readonly #wires = new Map<LockProvider, TcpProxy>();

  private constructor(
    readonly type: SqlType,
    readonly server: SqlServer,
    readonly admin: DataSource,
  ) {}

  static async start(type: SqlType): Promise<SqlBackend> {
    const server = await (type === 'mariadb' ? startMariaDb() : startPostgres());
    // Connections that come and go by themselves would be taken for those of a provider.
    const extra = type === 'postgres' ? { idleTimeoutMillis: 0 } : {};
    return new SqlBackend(type, server, await dataSource(type, server.port, { extra }).initialize());
  }

  /** The application's own DataSource, not initialized. */
  source(options: object = {}, port = this.server.port): DataSource {
    return dataSource(this.type, port, options);
  }

  /** A provider with a wire of its own. */
  provider(options: Partial<TypeOrmRowLockProviderOptions> = {}): Promise<TypeOrmRowLockProvider> {
    const defaults = { synchronize: true, sessionGuard: '2s', statementTimeout: '1s' };
    return this.wired((dataSource) => new TypeOrmRowLockProvider({ ...defaults, dataSource, ...options }));
  }

  /** Whatever provider, with a wire of its own. */
  async wired<P extends LockProvider>(make: (dataSource: DataSource) => P): Promise<P> {
    const wire = await startTcpProxy(this.server.port);
    const provider = make(this.source({}, wire.port));
    this.#wires.set(provider, wire);
    return provider;
  }

  wireOf(provider: LockProvider): TcpProxy | undefined {
    return this.#wires.get(provider);
  }

  /** Ends the connection of whoever holds the row of the key. */
  async revoke(namespace: string, key: string): Promise<void> {
    const operator = OPERATORS[this.type];
    const probe = this.admin.createQueryRunner();
    try {
      const [self] = (await probe.query(operator.own)) as { id: unknown }[];
      await probe.startTransaction();
      const sql = `SELECT 1 FROM ${TABLE} WHERE name = ${operator.value} FOR UPDATE`;
      const waiting = probe.query(sql, [rowNameOf(namespace, key)]);
      for (let killed = false; !killed;) {
        const blockers = await this.admin.query<{ id: unknown }[]>(operator.blockers, [self!.id]);
        for (const { id } of blockers) await this.admin.query(operator.kill(id));
        killed = blockers.length > 0;
        await sleep(INNODB_REFRESH);
      }
      await waiting;
      await probe.rollbackTransaction();
    } finally {
      await probe.release();
    }
  }

  /** How many rows of the namespace are locked. */
  async lockedRows(namespace: string): Promise<number> {
    const { value } = OPERATORS[this.type];
    const where = `FROM ${TABLE} WHERE name LIKE ${value}`;
    return this.admin.transaction(async (manager) => {
      const all = await manager.query<unknown[]>(`SELECT 1 ${where}`, [`${namespace}:%`]);
      const free = await manager.query<unknown[]>(`SELECT 1 ${where} FOR UPDATE SKIP LOCKED`, [`${namespace}:%`]);
      return all.length - free.length;
    });
  }

  /** How many transactions are open on the server. */
  async transactions(): Promise<number> {
    if (this.type === 'mariadb') await sleep(INNODB_REFRESH);
    const [row] = await this.admin.query<{ n: unknown }[]>(OPERATORS[this.type].transactions);
    return Number(row!.n);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#wires.values()].map((wire) => wire.close()));
    await this.admin.destroy();
    await this.server.stop();
  }
}

/** What the conformance kit needs of row locks on this database. */
export function rowLockHarness(backend: () => SqlBackend): ProviderHarness {
  const somewhere = { dataSource: dataSource('mariadb', 1), fencing: true };
  return {
    capabilities: new TypeOrmRowLockProvider(somewhere).capabilities,
    create: () => backend().provider({ fencing: true, maxConnections: 20 }),
    // The session guard.
    lease: 2_000,
    faults: {
      revoke: (namespace, key) => backend().revoke(namespace, key),
      cutOff: async (provider) => backend().wireOf(provider)?.freeze(),
      restore: async (provider) => backend().wireOf(provider)?.thaw(),
    },
    leftovers: (namespace) => backend().lockedRows(namespace),
  };
}

function dataSource(type: SqlType, port: number, options: object = {}): DataSource {
  const account = type === 'mariadb' ? { username: 'root', database: 'test' } : { username: 'postgres' };
  return new DataSource({ type, host: '127.0.0.1', port, ...account, ...options });
}
