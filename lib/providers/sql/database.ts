import type { BackendContext, Diagnostic } from '../../api/lock-provider.js';
import { firstRow, type Run, textOf } from './connection/answer.js';
import { dialectOf } from './connection/databases.js';
import { partsOf, quotedTable } from './table/lock-schema.js';
import { LockTable } from './table/lock-table.js';
import type { SqlSettings } from './options.js';
import { Server } from './connection/server.js';
import { type SessionLimits, Sessions } from './connection/sessions.js';

/** A database server, connected. */
export interface Database {
  readonly server: Server;
  /** Runs a statement in autocommit. */
  readonly run: Run;
  /** The sessions on which locks are held. */
  readonly sessions: Sessions;
  readonly table: LockTable;
  /** The findings in the configuration that weaken the guarantee. */
  diagnose(): readonly Diagnostic[];
  close(): Promise<void>;
}

/** How many connections there are, and whether the table of the locks is needed. */
interface Needs {
  readonly forStatements: number;
  /** Undefined where locks do not live in sessions. */
  readonly forLocks?: SessionLimits;
  readonly table: boolean;
}

/** For statements in autocommit. Such a session holds nothing, so nobody waits for its end. */
const AUTOCOMMIT = { guard: 600_000, lockWait: 1_000, autocommit: true, reserved: 0 };

/**
 * Connects to a server. The connections are our own: those of the application's pool may all be waiting for the very locks that are to be
 * renewed or released.
 *
 * @throws LockConfigError on a server on which locks cannot exclude each other, and for a table that cannot keep locks
 */
export async function connectToServer(settings: SqlSettings, context: BackendContext, needs: Needs): Promise<Database> {
  const { source, family, commandTimeout } = settings;
  const dialect = dialectOf(source, commandTimeout, needs.forLocks !== undefined);
  const server = new Server(context, dialect, settings);
  const statements = new Sessions(server, { ...AUTOCOMMIT, most: needs.forStatements });
  const sessions = needs.forLocks ? new Sessions(server, needs.forLocks) : statements;
  const close = async () => {
    // In this order, and in one tick: what is left is in use, and is ended by the control session.
    await Promise.all([sessions.close(), statements.close(), server.close()]);
  };
  try {
    const { facts } = await server.control();
    const question = family.schemaOf(quotedTable(family, settings.table));
    const schema = partsOf(settings.table).schema ?? textOf(firstRow(await statements.run(...question))?.['name']);
    const tableName = `${schema === undefined ? '' : `${schema}.`}${partsOf(settings.table).name}`;
    const insertKey = (name: string) => dialect.withoutWait(family.insertKey(name));
    const table = new LockTable(tableName, { ...family, insertKey }, statements.run, context, settings);
    if (needs.table) await table.prepare();
    const most = 1 + needs.forStatements + (needs.forLocks?.most ?? 0);
    const diagnose = () => [...server.diagnostics, ...tooMany(most, facts.maxConnections)];
    return { server, sessions, run: statements.run, table, diagnose, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** A few processes together would use all connections of the server. */
function tooMany(most: number, offered: number): readonly Diagnostic[] {
  if (most * 4 <= offered) return [];
  const message = `One process may open ${most} connections for locks, and the server accepts ${offered} from all its clients (max_connections). Lower maxConnections, or raise the limit of the server.`;
  return [{ severity: 'warning', message }];
}
