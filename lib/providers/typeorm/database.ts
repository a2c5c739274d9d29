import { DataSource, type DataSourceOptions } from 'typeorm';
import type { ProviderContext } from '../../engine/lock-provider.js';
import { LockConfigError } from '../../lock/errors.js';
import type { ServerSettings } from './database-options.js';
import { type Dialect, firstRow, propertyOf, type Run, type Weakness } from './dialect.js';
import { LockTable } from './lock-table.js';
import { mysqlDialect, ownMysqlPool } from './mysql-dialect.js';
import { ownPostgresPool, postgresDialect } from './postgres-dialect.js';
import { inTime } from './session.js';
import { Sessions } from './sessions.js';

/** The database with a pool of our own, connected. */
export interface Database {
  readonly context: ProviderContext;
  readonly dialect: Dialect;
  readonly sessions: Sessions;
  readonly table: LockTable;
  /** What in the server's configuration weakens the guarantee. */
  readonly weaknesses: readonly Weakness[];
}

// Beside the sessions: the one for control, and one that is being replaced.
const SPARE_CONNECTIONS = 2;

/**
 * Connects, and sees to the table where there has to be one.
 *
 * @throws LockConfigError on a server on which locks cannot exclude each other, and when the table is missing.
 */
export async function connect(
  settings: ServerSettings,
  context: ProviderContext,
  needsTable: boolean,
): Promise<Database> {
  const own = new DataSource(ownOptions(settings));
  try {
    await own.initialize();
    const { dialect, weaknesses } = await examine(own, settings, context);
    if (!settings.allowUnsafeTopology) refuse(weaknesses, context.name);
    const sessions = new Sessions(context, own, dialect, settings.terms);
    const table = new LockTable(dialect, sessions.run);
    if (needsTable) await table.prepare(settings.synchronize);
    return { context, dialect, sessions, table, weaknesses };
  } catch (error) {
    if (own.isInitialized) await own.destroy().catch(() => undefined);
    throw error;
  }
}

/** Looks at the server over two connections before any setting is made: behind a pooler it would stay on others' connections. */
async function examine(own: DataSource, { database, table, terms }: ServerSettings, { clock }: ProviderContext) {
  const runners = [own.createQueryRunner('master'), own.createQueryRunner('master')] as const;
  const [one, other] = runners.map(
    (runner): Run =>
      (sql, parameters = []) =>
        inTime({ clock, patience: terms.patience }, runner.query(sql, [...parameters])),
  ) as [Run, Run];
  try {
    const dialect = database === 'mysql' ? mysqlDialect(table, await versionOf(one)) : postgresDialect(table);
    return { dialect, weaknesses: await dialect.examine(one, other) };
  } finally {
    await Promise.all(runners.map((runner) => runner.release()));
  }
}

function refuse(weaknesses: readonly Weakness[], provider: string): void {
  const errors = weaknesses.filter(({ severity }) => severity === 'error').map(({ message }) => message);
  if (errors.length === 0) return;
  throw new LockConfigError(
    `Lock provider "${provider}": ${errors.join(' ')} Where you know better, set allowUnsafeTopology.`,
    { provider },
  );
}

function ownOptions({ dataSource, database, terms }: ServerSettings): DataSourceOptions {
  const size = terms.maxConnections + SPARE_CONNECTIONS;
  const ownPool = database === 'mysql' ? ownMysqlPool : ownPostgresPool;
  const own: DataSourceOptions = {
    ...ownPool(dataSource.options, size, terms.patience),
    // Of the application, whose own does what concerns them: ours is only a pool.
    entities: [],
    synchronize: false,
    migrationsRun: false,
    dropSchema: false,
    migrations: [],
    subscribers: [],
    cache: false,
    // The statements of a lock are no news.
    logging: false,
  };
  // TypeORM begins each transaction with the level of the application otherwise, over READ COMMITTED, which is set for the session:
  // who waits for a row would then read what was there before it waited.
  Reflect.deleteProperty(own, 'isolationLevel');
  return own;
}

async function versionOf(run: Run): Promise<string> {
  return String(propertyOf(firstRow(await run('SELECT VERSION() AS version')), 'version'));
}
