import type { BackendContext, Diagnostic } from '../../api/lock-provider.js';
import { firstRow, type Run, textOf } from './connection/answer.js';
import { partsOf, quotedTable } from './table/lock-schema.js';
import { LockTable } from './table/lock-table.js';
import type { SqlSettings } from './options.js';
import { Server } from './connection/server.js';
import { type SessionLimits, Sessions } from './connection/sessions.js';

/** A connected database. */
export interface Database {
  readonly settings: SqlSettings;
  readonly server: Server;
  /** Runs a statement in autocommit. */
  readonly run: Run;
  /** The sessions that hold locks. */
  readonly sessions: Sessions;
  readonly table: LockTable;
  /** Returns configuration problems that weaken the guarantee. */
  diagnose(): readonly Diagnostic[];
  close(): Promise<void>;
}

/** The number of connections, and whether the lock table is needed. */
interface Needs {
  readonly forStatements: number;
  /** Undefined if locks don't belong to sessions. */
  readonly forLocks?: SessionLimits;
  readonly table: boolean;
}

/** For autocommit sessions. They don't hold locks, so their guard can be long. */
const AUTOCOMMIT = { guard: 600_000, lockWait: 1_000, autocommit: true, reserved: 0 };

/**
 * Connects to a server with our own connections, because all connections in the application's pool may be waiting for the
 * locks to be renewed or released.
 *
 * @throws LockConfigError if the server can't guarantee mutual exclusion, or the table can't store locks
 */
export async function connectToServer(settings: SqlSettings, context: BackendContext, needs: Needs): Promise<Database> {
  const { source, family, commandTimeout } = settings;
  const dialect = family.dialectFor(source, commandTimeout, needs.forLocks !== undefined);
  const server = new Server(context, dialect, settings);
  const statements = new Sessions(server, { ...AUTOCOMMIT, most: needs.forStatements });
  const sessions = needs.forLocks ? new Sessions(server, needs.forLocks) : statements;
  const close = async () => {
    // Close in this order within one tick, because the control session must end those still in use.
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
    return { settings, server, sessions, run: statements.run, table, diagnose, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Warns if a few processes could use up all of the server's connections. */
function tooMany(most: number, offered: number): readonly Diagnostic[] {
  if (most * 4 <= offered) return [];
  const message = `One process can open ${most} connections for locks, but the server accepts only ${offered} from all clients (max_connections). Lower maxConnections, or raise the server limit.`;
  return [{ severity: 'warning', message }];
}
