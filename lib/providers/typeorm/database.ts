import { DataSource, type DataSourceOptions } from 'typeorm';
import type { ProviderContext } from '../../engine/lock-provider.js';
import { type Dialect } from './dialect.js';
import { LockTable } from './lock-table.js';
import { mysqlDialect, ownMysqlPool } from './mysql-dialect.js';
import { ownPostgresPool, postgresDialect } from './postgres-dialect.js';
import type { RowLockSettings } from './row/row-lock-options.js';
import { Sessions } from './sessions.js';

/** The database with a pool of our own, connected. */
export interface Database {
  readonly dialect: Dialect;
  readonly sessions: Sessions;
  readonly table: LockTable;
}

// Beside the sessions: the one for control, and one that is being replaced.
const SPARE_CONNECTIONS = 2;

/** Connects, and sees to the table. */
export async function connect(settings: RowLockSettings, context: ProviderContext): Promise<Database> {
  const own = new DataSource(ownOptions(settings));
  try {
    await own.initialize();
    // The application's own subscribers see what is written in the transaction of a lock. Making them again would double
    // what they do.
    Object.assign(own, { subscribers: settings.dataSource.subscribers });
    const dialect =
      settings.database === 'mysql'
        ? mysqlDialect(settings.table, await versionOf(own))
        : postgresDialect(settings.table);
    const sessions = new Sessions(context, own, dialect, settings.terms);
    const table = new LockTable(dialect, sessions.run);
    await table.prepare(settings.synchronize);
    return { dialect, sessions, table };
  } catch (error) {
    if (own.isInitialized) await own.destroy().catch(() => undefined);
    throw error;
  }
}

function ownOptions({ dataSource, database, terms }: RowLockSettings): DataSourceOptions {
  const size = terms.maxConnections + SPARE_CONNECTIONS;
  const ownPool = database === 'mysql' ? ownMysqlPool : ownPostgresPool;
  return {
    ...ownPool(dataSource.options, size, terms.patience),
    // What concerns the schema, and is done by the application's own.
    synchronize: false,
    migrationsRun: false,
    dropSchema: false,
    migrations: [],
    subscribers: [],
    cache: false,
    // The statements of a lock are no news, and a heartbeat would be logged every ten seconds.
    logging: false,
  };
}

async function versionOf(dataSource: DataSource): Promise<string> {
  const rows: unknown = await dataSource.query('SELECT VERSION() AS version');
  return JSON.stringify(rows);
}
