import type { EventEmitter } from 'node:events';
import type { DataSourceOptions } from 'typeorm';
import {
  type Dialect,
  type DriverConnection,
  driverErrorOf,
  type Failure,
  firstRow,
  propertyOf,
  type Run,
  type Weakness,
} from './dialect.js';
import { createTableSql, quotedTable, SERVER_TIME } from './table-layout.js';

/** The part of a Client of pg that is used here. */
interface PgClient extends DriverConnection {
  query(
    sql: unknown,
    values: unknown,
  ): Promise<{ readonly fields: readonly unknown[]; readonly rows: readonly unknown[] }>;
  getTransactionStatus?(): 'I' | 'T' | 'E' | null;
  end?(): Promise<void>;
  readonly connection?: { readonly stream?: { destroy(): void } };
}

// When a connection began, in µs; a double holds it exactly.
const BEGUN = `(EXTRACT(EPOCH FROM backend_start) * 1000000)::bigint`;

/** Postgres from 9.6 on, by the driver pg. */
export function postgresDialect(table: string): Dialect {
  const name = quotedTable('postgres', table);
  const clause = { exclusive: 'FOR UPDATE', shared: 'FOR SHARE' };
  return {
    async send(connection: PgClient, sql, parameters) {
      const result = await connection.query(sql, parameters);
      return result.fields.length > 0 ? result.rows : result;
    },
    async setUp(run, guard, lockWait) {
      // The guard of a transaction, and that of a session without one, which servers before 14 do not have. Servers from 17 on
      // may limit the whole of a transaction besides: a lock lasts for as long as its holder lives.
      await run(
        `SELECT set_config(name, CASE name WHEN 'transaction_timeout' THEN '0' ELSE $1 END, false) FROM pg_settings ` +
          `WHERE name IN ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')`,
        [wholeMs(guard)],
      );
      await run(
        `SELECT set_config('lock_timeout', $1, false), set_config('statement_timeout', '0', false), ` +
          `set_config('default_transaction_isolation', 'read committed', false)`,
        [wholeMs(lockWait)],
      );
      // The system gives the number of a process that has ended to another one, which began at another time.
      const own = firstRow(
        await run(`SELECT pid, ${BEGUN} AS begun FROM pg_stat_activity WHERE pid = pg_backend_pid()`),
      );
      const [pid, begun] = [Number(own?.['pid']), Number(own?.['begun'])];
      return `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ${pid} AND ${BEGUN} = ${begun}`;
    },
    tryLock: (mode) => `SELECT 1 FROM ${name} WHERE name = $1 ${clause[mode]} SKIP LOCKED`,
    awaitLock: (mode) => `SELECT 1 FROM ${name} WHERE name = $1 ${clause[mode]}`,
    findRow: `SELECT 1 FROM ${name} WHERE name = $1`,
    createRow: `INSERT INTO ${name} (name, expires) VALUES ($1, ${SERVER_TIME.postgres}) ON CONFLICT DO NOTHING`,
    async nextToken(run, row) {
      const answer = await run(
        `UPDATE ${name} SET token = GREATEST(token + 1, ${SERVER_TIME.postgres}) WHERE name = $1 RETURNING token`,
        [row],
      );
      const token = firstRow(answer)?.['token'];
      // A bigint comes as text, unless the application has chosen otherwise (parseInt8).
      return token === undefined ? undefined : BigInt(token as string | number | bigint);
    },
    heartbeat: 'SELECT 1',
    findTable: `SELECT 1 FROM ${name} LIMIT 0`,
    createTable: createTableSql('postgres', table),
    classify,
    isNoSavepoint: (error) => propertyOf(error, 'code') === '3B001',
    // Which may be in any language.
    isAnswer: (error) => propertyOf(error, 'severity') !== undefined,
    // I: idle; T: in a transaction; E: in one in which a statement has failed. A client that cannot tell is older than pg 8.17.
    isInTransaction(connection: PgClient) {
      const status = connection.getTransactionStatus?.();
      return status ? status !== 'I' : undefined;
    },
    lend: (connection: PgClient, statement, stream) => ({
      // A stream of rows comes as an object that sends itself.
      query: (text: unknown, values: unknown) =>
        propertyOf(text, 'submit')
          ? stream(() => connection.query(text, values) as unknown as EventEmitter, 'close')
          : statement(async () => [await connection.query(text, values)] as const).then(([result]) => result),
    }),
    sever(connection: PgClient) {
      // By this alone pg's pool knows at once that it must not give the client out again.
      connection.end?.().catch(() => undefined);
      connection.connection?.stream?.destroy();
    },
    examine,
  };
}

// 0 is for ever.
function wholeMs(milliseconds: number): string {
  return milliseconds === Infinity ? '0' : String(Math.ceil(milliseconds));
}

/** The options of a pool of our own on the primary. */
export function ownPostgresPool(options: DataSourceOptions, size: number, patience: number): DataSourceOptions {
  const { replication, ...rest } = options as DataSourceOptions & { replication?: { master?: object } };
  const extra = { ...(rest.extra as object | undefined), max: size };
  // By this pg gives up a statement that the server goes on with, so that a wait would be granted a lock that nobody has.
  Reflect.deleteProperty(extra, 'query_timeout');
  return { ...rest, ...replication?.master, connectTimeoutMS: patience, extra } as DataSourceOptions;
}

function classify(error: unknown): Failure {
  switch (propertyOf(driverErrorOf(error), 'code')) {
    case '55P03': // lock_not_available: NOWAIT, lock_timeout
    case '57014': // query_canceled: statement_timeout
      return 'busy';
    case '40P01': // deadlock_detected
    case '40001': // serialization_failure
      return 'rolled-back';
    case '42P01':
      return 'no-table';
    default:
      return 'other';
  }
}

async function examine(one: Run, other: Run): Promise<readonly Weakness[]> {
  const found: Weakness[] = [];
  const first = firstRow(
    await one(`SELECT pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only') AS read_only`),
  );
  if (first?.['standby'] === true) {
    found.push({
      severity: 'error',
      message: 'This server is a standby: give the provider the address of the primary.',
    });
  }
  // Not overridden: it is also how an operator keeps applications from writing to a server that has been replaced.
  if (first?.['read_only'] === 'on') {
    found.push({
      severity: 'error',
      message:
        'Transactions are read-only here (default_transaction_read_only): give the provider the address of the writer, or set it to off for this database or role.',
    });
  }
  if (await isPooled(one, other)) {
    found.push({
      severity: 'error',
      message:
        'A pooler in transaction mode stands between (PgBouncer): locks of a session and settings, among them the guard, are lost there or left on connections of others. Connect to the server itself, or pool by session.',
    });
  }
  return found;
}

/** Each connection has a backend of its own, and keeps it while another one is in a transaction; not so behind a pooler. */
async function isPooled(one: Run, other: Run): Promise<boolean> {
  const backendOf = async (run: Run) => firstRow(await run('SELECT pg_backend_pid() AS id'))?.['id'];
  const before = await backendOf(one);
  await other('BEGIN');
  const others = await backendOf(other);
  const after = await backendOf(one);
  await other('ROLLBACK');
  return before !== after || before === others;
}
