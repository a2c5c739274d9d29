import type { Finding, ProviderContext, Records } from '../../api/lock-provider.js';
import { LockTable } from './lock-table.js';
import { mysqlDialect } from './mysql-dialect.js';
import type { DatabaseSettings, ServerFamily } from './options.js';
import { postgresDialect } from './postgres-dialect.js';
import { ServerRecords } from './records.js';
import { Server } from './server.js';
import { type SessionLimits, Sessions } from './sessions.js';

/** A database, connected. */
export interface Connected {
  /** SQLite has none. */
  readonly records?: Records;
  /** What in the configuration weakens the guarantee. */
  diagnose(): readonly Finding[];
  close(): Promise<void>;
}

/** A database server, connected. */
export interface Database extends Connected {
  readonly context: ProviderContext;
  readonly server: Server;
  /** Those that locks are held on. */
  readonly sessions: Sessions;
  /** Those for statements in autocommit. */
  readonly statements: Sessions;
  readonly table: LockTable;
  readonly records: Records;
}

/** How many connections there are, and whether the table of the locks is needed. */
interface Needs {
  readonly forStatements: number;
  /** None where locks do not live in sessions. */
  readonly forLocks?: SessionLimits;
  readonly table: boolean;
}

/** Of a session for statements in autocommit. It holds nothing, so nobody waits for its end. */
const AUTOCOMMIT = { guard: 600_000, lockWait: 1_000, autocommit: true, reserved: 0 };

/**
 * Connects to a server. The connections are our own: those of the application's pool may all be waiting for the very locks that are to be
 * renewed or released.
 *
 * @throws LockConfigError on a server on which locks cannot exclude each other, and for a table that cannot keep locks
 */
export async function connectToServer(
  settings: DatabaseSettings<ServerFamily>,
  context: ProviderContext,
  needs: Needs,
): Promise<Database> {
  const { dataSource, statementTimeout, synchronize } = settings;
  const dialectOf = settings.database === 'mysql' ? mysqlDialect : postgresDialect;
  const dialect = dialectOf(dataSource.options, statementTimeout);
  const server = new Server(context, dialect, settings);
  const statements = new Sessions(server, { ...AUTOCOMMIT, most: needs.forStatements });
  const sessions = needs.forLocks ? new Sessions(server, needs.forLocks) : statements;
  const close = async () => {
    // In this order, and in one tick: sessions that are in use are ended by the control session, and no new one is opened.
    await Promise.all([sessions.close(), statements.close(), server.close()]);
  };
  try {
    const { facts } = await server.control();
    const withoutWait = dialect.withoutWait.bind(dialect);
    const table = new LockTable(settings.database, settings.table, statements.run, withoutWait);
    if (needs.table) {
      await table.prepare(synchronize);
      await dialect.assertTable(statements.run, settings.table);
    }
    const most = 1 + needs.forStatements + (needs.forLocks?.most ?? 0);
    return {
      ...{ context, server, sessions, statements, table, close },
      records: new ServerRecords(settings, context.namespace, statements.run),
      diagnose: () => [...server.weaknesses, ...tooMany(most, facts.maxConnections)],
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Few processes together would take all connections of the server. */
function tooMany(most: number, offered: number): readonly Finding[] {
  if (most * 4 <= offered) return [];
  const message = `One process may open ${most} connections for locks, and the server takes ${offered} from all its clients (max_connections): lower maxConnections, or raise the limit of the server.`;
  return [{ severity: 'warning', message }];
}
