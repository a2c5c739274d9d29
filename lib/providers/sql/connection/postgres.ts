import type { Diagnostic } from '../../../api/lock-provider.js';
import { refuseOlder } from '../../shared/oldest-version.js';
import { firstRow, isTrue, propertyOf, type Row, type Run } from './answer.js';
import { LockConfigError } from '../../../api/errors.js';
import type { LockMode } from '../../../api/lock-mode.js';
import { advisoryLockNumber } from '../advisory/advisory-name.js';
import {
  type Dialect,
  type DriverConnection,
  driverSettings,
  type DriverSource,
  type Family,
  type OfMany,
  refuseStream,
  type ServerFacts,
  type SessionKind,
  type TimeLimits,
} from './dialect.js';

/** The part of a Client of pg that is used here. */
interface PgClient extends DriverConnection {
  /** The number of the server's process, as the server reported it when the connection was opened. */
  readonly processID?: number | null;
  connect(): Promise<unknown>;
  query(sql: unknown, values: unknown): Promise<Result>;
  query(
    sql: unknown,
    values: unknown,
    callback: (error: Error | null, result: Result | readonly Result[]) => void,
  ): void;
  /** Whether answers come in the binary format. */
  binary?: boolean;
  emit(event: 'error', error: unknown): void;
  getTransactionStatus?(): 'I' | 'T' | 'E' | null;
  end(): Promise<void>;
  readonly connection?: { readonly stream?: { destroy(): unknown } };
  readonly connectionParameters?: { query_timeout?: unknown };
}

interface Result {
  readonly fields: readonly unknown[];
  readonly rows: readonly unknown[];
}

export interface PostgresDriver {
  readonly Client: new (settings: object) => PgClient;
}

export type PostgresSource = DriverSource<'postgres', PostgresDriver>;

// Between two heartbeats a connection sends nothing. So only the system can notice early that it is gone: it asks each second from here on, and
// gives up after ten.
const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 };

// When a connection began, in µs; a double holds it exactly.
const BEGUN = `(EXTRACT(EPOCH FROM backend_start) * 1000000)::bigint`;

// A standby and a copy have the same one, and have started at another time. Not the address of the connection: a server may have several.
const SYSTEM = '(SELECT system_identifier::text FROM pg_control_system())';
// What keeps a server from being written. Operators use the setting to keep applications from a server that has been replaced.
const IS_STANDBY = 'pg_is_in_recovery()';
const READ_ONLY = `current_setting('default_transaction_read_only')`;
// That of the server, database and role, whatever a task has set for its session or transaction. It takes the server up to a millisecond.
const READ_ONLY_OF_SERVER = `(SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only')`;

// Like DISCARD ALL, but prepared statements stay, because pg remembers them; and the role is that of a new connection.
const RESET = [
  ...['CLOSE ALL', 'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE', 'RESET ALL', 'UNLISTEN *'],
  ...['SELECT pg_advisory_unlock_all()', 'DISCARD SEQUENCES', 'DISCARD TEMP'],
];

// insufficient_privilege, undefined_function, feature_not_supported.
const NO_SYSTEM: readonly unknown[] = ['42501', '42883', '0A000'];
// The table is for locks of all kinds. When it is full, each client is refused statements that need a place in it, a SELECT among them.
const LOCK_TABLE =
  `current_setting('max_locks_per_transaction')::int8 * ` +
  `(current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8)`;
const factsSql = (system: string) =>
  `SELECT pid, ${BEGUN} AS begun, ${system} AS system, extract(epoch FROM pg_postmaster_start_time())::text AS started, ` +
  `current_setting('port') AS port, ${IS_STANDBY} AS standby, ${READ_ONLY} AS read_only, ` +
  `current_setting('default_transaction_isolation') AS isolation, ` +
  `EXISTS (SELECT 1 FROM pg_language WHERE lanname = 'plpgsql' AND has_language_privilege(oid, 'USAGE')) AS plpgsql, ${LOCK_TABLE} AS places, ` +
  `current_setting('max_connections') AS most, current_setting('server_version') AS version FROM pg_stat_activity WHERE pid = pg_backend_pid()`;

// Settings that not every server has. A look at pg_settings would take twenty times as long (measured: 3 ms).
const has = (setting: string) => `current_setting('${setting}', true) IS NOT NULL`;
const NOTICE_DEATH = `SELECT set_config('client_connection_check_interval', '1s', false) WHERE ${has('client_connection_check_interval')}`;

// A batch of limited holders spells its statements in many ways. These would fill the memory of the server.
const MOST_PREPARED = 50;

// The statement was not run, because what the server has under its name does not fit it any more: a column of the table has another type
// (0A000), the name is unknown (26000) or taken (42P05), as after DISCARD ALL.
const STALE: readonly unknown[] = ['0A000', '26000', '42P05'];

// The number of the type boolean.
const BOOLEAN = 16;
// Values as the server spells them, and booleans: the application may have set parsers of its own, for a connection or for all.
const TYPES = {
  getTypeParser: (type: number) => (type === BOOLEAN ? (value: string) => value === 't' : (value: string) => value),
};

// Its time in µs.
const NOW = '(extract(epoch FROM statement_timestamp()) * 1000000)::bigint';

const question = (isReadOnly: string | undefined) => (isReadOnly === undefined ? '' : `, ${isReadOnly} AS read_only`);

/** An expression about a lock, for each of a list of them, whose elements come in their order. */
const ofEach =
  (expressionOf: (n: string) => string): OfMany =>
  (names, isReadOnly) =>
    names.length === 1
      ? [`SELECT ${expressionOf('$1::bigint')} AS done${question(isReadOnly)}`, names]
      : [
          `SELECT ${expressionOf('n')} AS done${question(isReadOnly && `(SELECT ${isReadOnly})`)} FROM unnest($1::bigint[]) AS n`,
          [names],
        ];

const calling = (name: string) => ofEach((n) => `${name}(${n})`);

const byMode = (exclusive: OfMany, shared: OfMany) => (mode: LockMode) => (mode === 'shared' ? shared : exclusive);

export const postgres: Family = {
  value: (position) => `$${position}`,
  // Several as one value: the text is the same for every number of them, so the server parses it once. One by itself costs the server less.
  isAmong: (column, position, count) => (count === 1 ? `${column} = $${position}` : `${column} = ANY($${position})`),
  list: (values) => (values.length === 1 ? values : [values]),
  now: NOW,
  // It refuses statements that write to every account.
  nowOnWriter: NOW,
  greatest: 'GREATEST',
  // Names the column: without a primary key the rows of one key would multiply, and each could be locked.
  insertKey: (table) =>
    `INSERT INTO ${table} (name, expires, label) VALUES ($1, ${NOW}, $2) ON CONFLICT (name) DO NOTHING`,
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = ${expression}${rest} RETURNING token`,
  tokenOf(answer) {
    // A number, text or a bigint, as the application has chosen.
    const token = firstRow(answer)?.['token'] as string | number | bigint | null | undefined;
    return token === undefined || token === null ? undefined : BigInt(token);
  },
  // As an array the inner SELECT is run once, whatever the plan is.
  deleteUnlocked(table, condition, count) {
    const unlocked = `SELECT name FROM ${table} WHERE ${this.isAmong('name', 1, count)} AND ${condition} FOR UPDATE SKIP LOCKED`;
    return `DELETE FROM ${table} WHERE name = ANY(ARRAY(${unlocked}))`;
  },
  changed: (answer) => Number(propertyOf(answer, 'rowCount') ?? 0),
  positionOf: 'strpos',
  join: (...texts) => texts.join(' || '),
  asText: (number) => `CAST(${number} AS text)`,
  quoted: (name) => `"${name.replaceAll('"', '""')}"`,
  createTable: (table) =>
    `CREATE TABLE IF NOT EXISTS ${table} (name varchar(255) COLLATE "C" PRIMARY KEY, ` +
    `token bigint NOT NULL DEFAULT 0, holder varchar(32) NULL, expires bigint NOT NULL DEFAULT 0, ` +
    `label text NULL, holders text NULL)`,
  schemaOf: (table) => [
    `SELECT COALESCE((SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace ` +
      `WHERE c.oid = to_regclass($1)), current_schema()) AS name`,
    [table],
  ],
  // Without a primary key one key would have many rows, and each could be locked.
  fits: (_schema, _name, table) => [
    `SELECT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = $1::regclass AND indisunique AND indisvalid AND indpred IS NULL ` +
      `AND indnatts = 1 AND pg_get_indexdef(indexrelid, 1, true) = 'name') AS fits`,
    [table],
  ],
  views: { row: 'pg_locks and pg_stat_activity', advisory: "pg_locks where locktype = 'advisory'" },
  // Of the session.
  advisory: {
    async scopeOf(run) {
      const guard = firstRow(await run(`SELECT current_setting('idle_session_timeout', true) AS guard`))?.['guard'];
      if (typeof guard === 'string') return '';
      throw new LockConfigError(
        'Advisory locks need Postgres 14 or later, which frees the locks of a frozen process (idle_session_timeout): update the server, or use TypeOrmRowLockProvider.',
      );
    },
    nameOf: (_, namespace, key) => advisoryLockNumber(namespace, key),
    tryLock: byMode(calling('pg_try_advisory_lock'), calling('pg_try_advisory_lock_shared')),
    joinReaders: ofEach(
      (n) =>
        `CASE WHEN EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted ` +
        `AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) ` +
        `AND (classid::bigint << 32) | objid::bigint = ${n}) THEN false ELSE pg_try_advisory_lock_shared(${n}) END`,
    ),
    unlock: byMode(calling('pg_advisory_unlock'), calling('pg_advisory_unlock_shared')),
    // A lock of the transaction, which ends with the message. In between, the session takes the lock itself.
    awaitLock(name, mode, limits, { catchesErrors }) {
      // Several statements in one message cannot have bound values.
      const number = `'${BigInt(name)}'`;
      const suffix = mode === 'shared' ? '_shared' : '';
      const wait = waitQuietly(`SELECT pg_advisory_xact_lock${suffix}($1::bigint)`, number, limits, catchesErrors);
      return [`${wait}; SELECT pg_try_advisory_lock${suffix}(${number}::bigint) AS done`, []];
    },
    unlockAll: 'SELECT pg_advisory_unlock_all()',
  },
  faults: {
    // lock_not_available, query_canceled.
    busy: ['55P03', '57014'],
    // Deadlock, serialization_failure.
    'rolled-back': ['40P01', '40001'],
    'no-savepoint': ['3B001'],
    'no-table': ['42P01'],
    // No such column, no primary key.
    'other-table': ['42703', '42P10'],
    'no-database': ['3D000'],
    login: ['28000', '28P01'],
    'read-only': ['25006'],
    // Missing privileges and row-level security, SQL or a value of a setting that the server does not know.
    refused: ['42501', '42601', '22023'],
  },
};

/**
 * Postgres from 13 on, by the driver pg.
 *
 * @param inSessions whether locks live in sessions, which a pooler gives to other clients
 */
export function postgresDialect(source: PostgresSource, connectionTimeoutMillis: number, inSessions: boolean): Dialect {
  /** By their texts. */
  const names = new Map<string, string>();
  let named = 0;
  const nameOf = (sql: string): string | undefined => {
    if (named < MOST_PREPARED && !names.has(sql)) names.set(sql, `distributed_lock_${named++}`);
    return names.get(sql);
  };
  let system = SYSTEM;
  const askFacts = async (run: Run) => {
    try {
      return firstRow(await run(factsSql(system)));
    } catch (error) {
      // Every account may call it, unless that was revoked, or the server only resembles Postgres. A check of the privilege in the same statement would
      // be refused as well.
      if (!NO_SYSTEM.includes(propertyOf(error, 'code')) || system !== SYSTEM) throw error;
      system = 'NULL';
      return firstRow(await run(factsSql(system)));
    }
  };
  /** The format of the answers to statements of the application, known from the first connection on. */
  let isBinary = false;
  return {
    async connect() {
      const { driver, settings } = await source.load();
      const client = new driver.Client(driverSettings(settings, KEEP_ALIVE, { connectionTimeoutMillis }));
      // A statement cannot ask for text on a client whose answers are binary; the reverse works.
      isBinary = client.binary === true;
      client.binary = false;
      // By it pg gives up a statement that the server goes on with, so a wait would be granted a lock that nobody has. An address and the
      // defaults of pg may name it, too.
      if (client.connectionParameters) client.connectionParameters.query_timeout = undefined;
      // An error without a listener would end the process.
      client.on('error', () => undefined);
      await client.connect();
      return client;
    },
    send(connection: PgClient, sql, parameters, prepares) {
      const askAs = (name?: string) => ask(connection, { name, text: sql, types: TYPES }, parameters);
      const name = prepares && parameters.length > 0 ? nameOf(sql) : undefined;
      if (name === undefined) return askAs();
      return askAs(name).catch((error: unknown) => {
        const code = propertyOf(error, 'code');
        if (!STALE.includes(code)) throw error;
        // From now on it has another name, or none when all have been given.
        if (names.get(sql) === name) names.delete(sql);
        if (!inSessions || code !== '26000') return askAs();
        // The session was reset, and its locks may be gone with its statements.
        connection.emit('error', error);
        throw error;
      });
    },
    async setUp(connection: PgClient, run, kind) {
      // A statement of the application could hide that the server becomes read-only.
      if (kind.initSql?.length) await run('RESET default_transaction_read_only');
      return setUp(connection, await askFacts(run), run, kind, inSessions);
    },
    beginWith: (connection: PgClient, sql, value) => together(connection, ['BEGIN', withValue(sql, value)]),
    beginWait(connection: PgClient, select, value, limits, { catchesErrors }) {
      const wait = waitQuietly(select, literal(value), limits, catchesErrors);
      return together(connection, ['BEGIN', wait, `${withValue(select, value)} SKIP LOCKED`]);
    },
    reset: (connection: PgClient) => together(connection, RESET),
    setLimits: (limits, inTransaction, isReadOnly) => `${setLimits(limits, inTransaction)}, ${isReadOnly} AS read_only`,
    // Shorter than deadlock_timeout (1 s), after which the server looks for a deadlock, and logs the wait where log_lock_waits is on.
    slice: { unit: 100, longest: 900, late: 0 },
    refusesRowLocks: true,
    forMode: () => 'FOR UPDATE',
    withoutWait: (sql) => sql,
    heartbeat: (isReadOnly, isLent) =>
      `SELECT ${isLent ? isReadOnly.replace(READ_ONLY, READ_ONLY_OF_SERVER) : isReadOnly} AS read_only`,
    uptime: () => Promise.resolve(Infinity),
    // Its text may be in any language. Class 08 is of a pooler that has lost its connection to the server.
    isAnswer: (error) =>
      propertyOf(error, 'severity') !== undefined && !String(propertyOf(error, 'code')).startsWith('08'),
    // I: idle; T: in a transaction; E: in one in which a statement has failed. A client that cannot tell is older than pg 8.17.
    isInTransaction(connection: PgClient) {
      const status = connection.getTransactionStatus?.();
      return status ? status !== 'I' : undefined;
    },
    lend: (connection: PgClient, statement) => ({
      // A stream of rows comes as an object that sends itself.
      query: (text: unknown, values: unknown) =>
        propertyOf(text, 'submit')
          ? refuseStream()
          : statement(async () => [await connection.query(isBinary ? inBinary(text) : text, values)] as const).then(
              ([result]) => result,
            ),
    }),
    close: (connection: PgClient) => connection.end(),
    sever: ({ connection }: PgClient) => connection?.stream?.destroy(),
  };
}

async function setUp(
  { processID }: PgClient,
  facts: Row | undefined,
  run: Run,
  { guard, lockWait, autocommit }: SessionKind,
  inSessions: boolean,
): Promise<ServerFacts> {
  refuseOlder('SQL locks', 'PostgreSQL', String(facts?.['version']), '13');
  const [pid, begun] = [Number(facts?.['pid']), Number(facts?.['begun'])];
  // A pooler reports its own number. A driver that reports none (pg-native) cannot be judged by it.
  const isPooled = typeof processID === 'number' && processID !== pid;
  // Behind a pooler they would stay on a connection that other clients use next.
  const mayConfigure = inSessions || !isPooled;
  // The guard of a transaction, and that of a session without one, which servers before 14 do not have. Servers from 17 on may limit
  // whole transactions: a lock lasts as long as its holder lives.
  if (mayConfigure) {
    const set = (setting: string, value: string) => `set_config('${setting}', ${value}, false)`;
    const setIfKnown = (setting: string, value: string) => `CASE WHEN ${has(setting)} THEN ${set(setting, value)} END`;
    const settings = [
      set('lock_timeout', '$2'),
      set('default_transaction_isolation', `'read committed'`),
      set('idle_in_transaction_session_timeout', '$1'),
      setIfKnown('idle_session_timeout', '$1'),
      setIfKnown('transaction_timeout', `'0'`),
      set('statement_timeout', `'0'`),
    ];
    await run(`SELECT ${settings.join(', ')}`, [wholeMs(guard), wholeMs(lockWait)]);
  }
  // By default a server notices only at the end of a statement of the application that its client was killed. One on an operating system that
  // cannot tell earlier refuses any other value.
  if (!autocommit) await run(NOTICE_DEATH).catch(() => undefined);
  const diagnostics: Diagnostic[] = [];
  const refuse = (message: string) => diagnostics.push({ severity: 'error', message });
  if (facts?.['standby'] === true) refuse('This server is a standby: give the provider the address of the primary.');
  if (facts?.['read_only'] === 'on') {
    refuse(
      'Transactions are read-only here (default_transaction_read_only): give the provider the address of the writer, or set it to off for this database or role.',
    );
  }
  const readOnly = diagnostics.length;
  if (!mayConfigure && facts?.['isolation'] !== 'read committed') {
    refuse(
      `Transactions are ${String(facts?.['isolation'])} here, which cannot be changed behind a pooler: set default_transaction_isolation to 'read committed' for this role.`,
    );
  }
  if (isPooled && inSessions) {
    refuse(
      'A pooler such as PgBouncer is between this process and the server. In transaction mode it gives the locks and settings of a session to other clients. Connect to the server itself, or use the version lock; behind a pooler in session mode set allowUnsafeTopology.',
    );
  }
  return {
    server: ['system', 'started', 'port'].map((name) => facts?.[name]).join(' '),
    // The system gives the number of a process that has ended to another process, which began at another time. Behind a pooler, other
    // connections have the same number.
    kill: isPooled
      ? undefined
      : `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ${pid} AND ${BEGUN} = ${begun}`,
    diagnostics,
    refusesWrites: readOnly > 0 && diagnostics.length === readOnly,
    isReadOnly: `${IS_STANDBY} OR ${READ_ONLY} = 'on'`,
    // Not where the application may send DEALLOCATE, and not where the next statement may go to another server process.
    prepares: autocommit && !isPooled,
    catchesErrors: isTrue(facts?.['plpgsql']),
    lockTable: Number(facts?.['places']),
    maxConnections: Number(facts?.['most']),
  };
}

/** Several statements in one message, which cannot have bound values. Resolves to the answer of the last one. */
function together(connection: PgClient, statements: readonly string[]): Promise<unknown> {
  return ask(connection, { text: statements.join('; '), types: TYPES }, undefined);
}

/** By a callback: without one the driver makes two promises, to give an error the stack of its caller, which here is the same for all. */
function ask(connection: PgClient, statement: object, values: unknown): Promise<unknown> {
  return new Promise((resolve, reject) => {
    connection.query(statement, values, (error, result) => {
      if (error) reject(error);
      else resolve(answerOf(result));
    });
  });
}

/** Of several statements, that of the last one. */
function answerOf(results: Result | readonly Result[]): unknown {
  const result = Array.isArray(results) ? (results.at(-1) as Result) : (results as Result);
  return result.fields.length > 0 ? result.rows : result;
}

/** The statement with its value, which is the name of a row, in its text. */
const withValue = (sql: string, name: string) => sql.replace('$1', literal(name));

/**
 * Statements that wait within these limits for the lock that a SELECT of one value takes. Its end without the lock is caught: the server would log
 * an error each second. The text of the DO is the same for each value, because pg_stat_statements counts each text by itself.
 *
 * @param value as SQL spells it
 */
function waitQuietly(select: string, value: string, limits: TimeLimits, catchesErrors: boolean): string {
  const limit = setLimits(limits, true);
  if (!catchesErrors) return `${limit}; ${select.replace('$1', value)}`;
  const perform = select.replace(/^SELECT/, 'PERFORM').replace('$1', `current_setting('distributed_lock.name')`);
  const wait = `DO $wait$ BEGIN ${perform}; EXCEPTION WHEN lock_not_available THEN NULL; END $wait$`;
  return `${limit}, set_config('distributed_lock.name', ${value}, true); ${wait}`;
}

/** The guard of a transaction, or of a session that has none: servers before 14 do not know the second one. */
function setLimits({ guard, lockWait }: TimeLimits, inTransaction: boolean): string {
  const name = inTransaction ? 'idle_in_transaction_session_timeout' : 'idle_session_timeout';
  const set = (setting: string, value: number) => `set_config('${setting}', '${wholeMs(value)}', ${inTransaction})`;
  return `SELECT ${set(name, guard)}, ${set('lock_timeout', lockWait)}`;
}

/** The same statement, whose answer comes in the binary format. Derived, because its text may be a getter of a class. */
function inBinary(statement: unknown): object {
  const binary = { value: true, writable: true, enumerable: true, configurable: true };
  return typeof statement === 'string'
    ? { text: statement, binary: true }
    : (Object.create(statement as object, { binary }) as object);
}

/** A name of a row, which consists of characters that need no escape. */
function literal(name: string): string {
  if (/^[A-Za-z0-9_.:@/=+,#-]+$/.test(name)) return `'${name}'`;
  throw new Error('The name of a row has characters that it cannot have.');
}

// 0 means no limit.
function wholeMs(milliseconds: number): string {
  return milliseconds === Infinity ? '0' : String(Math.ceil(milliseconds));
}
