import { refuseOlder } from '../../shared/oldest-version.js';
import { firstRow, isTrue, propertyOf, type Row, type Run } from './answer.js';
import { LockConfigError } from '../../../api/errors.js';
import type { LockMode } from '../../../api/lock-mode.js';
import { advisoryLockNumber } from '../advisory/advisory-name.js';
import {
  type Callback,
  type Dialect,
  type DriverConnection,
  driverSettings,
  type Family,
  type OfMany,
  refuseStream,
  type ServerFacts,
  type SessionKind,
  type SqlSource,
  type TimeLimits,
  withCallback,
} from './dialect.js';

/** The part of a pg Client that is used here. */
interface PgClient extends DriverConnection {
  /** The server's process id, as reported when the connection was opened. */
  readonly processID?: number | null;
  connect(): Promise<unknown>;
  query(sql: unknown, values: unknown): Promise<Result>;
  query(sql: unknown, values: unknown, callback: Callback): void;
  /** Whether answers are in binary format. */
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

interface PostgresDriver {
  readonly Client: new (settings: object) => PgClient;
}

// A connection is silent between heartbeats, so only TCP can detect a dead one early. After this delay, TCP sends a
// keep-alive probe every second and gives up after ten.
const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 };

// When a connection was opened, in µs; the value fits exactly in a double.
const BEGUN = `(EXTRACT(EPOCH FROM backend_start) * 1000000)::bigint`;

// A standby or a copy has the same identifier but a different start time. The address isn't included: a server may have
// several.
const SYSTEM = '(SELECT system_identifier::text FROM pg_control_system())';
// What makes a server read-only. Operators also use the setting to keep applications away from a replaced server.
const IS_STANDBY = 'pg_is_in_recovery()';
const READ_ONLY = `current_setting('default_transaction_read_only')`;
// The default for the server, database, and role, even if a task has changed it for its session or transaction. Takes
// up to 1 ms.
const READ_ONLY_OF_SERVER = `(SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only')`;

// Like DISCARD ALL, but keeps prepared statements, because pg remembers them. The role is reset to the role
// of a new connection.
const RESET = [
  ...['CLOSE ALL', 'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE', 'RESET ALL', 'UNLISTEN *'],
  ...['SELECT pg_advisory_unlock_all()', 'DISCARD SEQUENCES', 'DISCARD TEMP'],
];

// insufficient_privilege, undefined_function, feature_not_supported.
const NO_SYSTEM: readonly unknown[] = ['42501', '42883', '0A000'];
// The lock table is shared by all kinds of locks. When it is full, any client's statement that needs an entry fails,
// even a SELECT.
const LOCK_TABLE =
  `current_setting('max_locks_per_transaction')::int8 * ` +
  `(current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8)`;
const factsSql = (system: string) =>
  `SELECT pid, ${BEGUN} AS begun, ${system} AS system, extract(epoch FROM pg_postmaster_start_time())::text AS started, ` +
  `current_setting('port') AS port, ${IS_STANDBY} AS standby, ${READ_ONLY} AS read_only, ` +
  `current_setting('default_transaction_isolation') AS isolation, ` +
  `EXISTS (SELECT 1 FROM pg_language WHERE lanname = 'plpgsql' AND has_language_privilege(oid, 'USAGE')) AS plpgsql, ${LOCK_TABLE} AS places, ` +
  `current_setting('max_connections') AS most, current_setting('server_version') AS version FROM pg_stat_activity WHERE pid = pg_backend_pid()`;

// Checks for settings that some servers lack. Querying pg_settings would take twenty times as long (3 ms, measured).
const has = (setting: string) => `current_setting('${setting}', true) IS NOT NULL`;
const NOTICE_DEATH = `SELECT set_config('client_connection_check_interval', '1s', false) WHERE ${has('client_connection_check_interval')}`;

// Batches of limited holders produce many different statements, which would fill the server's memory.
const MOST_PREPARED = 50;

// The statement wasn't executed, because the prepared statement is stale: a column type has changed (0A000), or its
// name is unknown (26000) or taken (42P05), for example after DISCARD ALL.
const STALE: readonly unknown[] = ['0A000', '26000', '42P05'];

// The OID of boolean.
const BOOLEAN = 16;
// Parse booleans and leave the rest as text: the application may have installed its own type parsers, per connection or
// globally.
const TYPES = {
  getTypeParser: (type: number) => (type === BOOLEAN ? (value: string) => value === 't' : (value: string) => value),
};

// The server's time in µs.
const NOW = '(extract(epoch FROM statement_timestamp()) * 1000000)::bigint';

const question = (isReadOnly: string | undefined) => (isReadOnly === undefined ? '' : `, ${isReadOnly} AS read_only`);

/** Applies an expression to each lock in a list, in order. */
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
  dialectFor: postgresDialect,
  value: (position) => `$${position}`,
  // A list is bound as one array, so the statement's text doesn't depend on the list's length and is parsed only once.
  // Binding a single value directly is cheaper.
  isAmong: (column, position, count) => (count === 1 ? `${column} = $${position}` : `${column} = ANY($${position})`),
  list: (values) => (values.length === 1 ? values : [values]),
  now: NOW,
  // This fails on a read-only server anyway, for every account.
  nowOnWriter: NOW,
  // Name the column so the statement fails if there is no primary key: without one, a key could have many rows.
  insertKey: (table) =>
    `INSERT INTO ${table} (name, expires, label) VALUES ($1, ${NOW}, $2) ON CONFLICT (name) DO NOTHING`,
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = ${expression}${rest} RETURNING token`,
  tokenOf(answer) {
    // A number, string, or bigint, depending on the application's type parsers.
    const token = firstRow(answer)?.['token'] as string | number | bigint | null | undefined;
    return token === undefined || token === null ? undefined : BigInt(token);
  },
  // Inside ARRAY, the inner SELECT runs only once, whatever the query plan.
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
  // Without a primary key, one key could have many rows, each of which could be locked. With quote_all_identifiers, the
  // server quotes the column's name.
  fits: (_schema, _name, table) => [
    `SELECT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = $1::regclass AND indisunique AND indisvalid AND indpred IS NULL ` +
      `AND indnatts = 1 AND pg_get_indexdef(indexrelid, 1, true) = quote_ident('name')) AS fits`,
    [table],
  ],
  views: { row: 'pg_locks and pg_stat_activity', advisory: "pg_locks where locktype = 'advisory'" },
  // Session-level advisory locks
  advisory: {
    async scopeOf(run) {
      const guard = firstRow(await run(`SELECT current_setting('idle_session_timeout', true) AS guard`))?.['guard'];
      if (typeof guard === 'string') return '';
      throw new LockConfigError(
        'Advisory locks need Postgres 14 or later, which can release locks held by a frozen process (idle_session_timeout). Upgrade the server, or use a row lock.',
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
    // Waits for a transaction-level lock, which ends with the message, before the session takes the lock itself.
    awaitLock(name, mode, limits, { catchesErrors }) {
      // Several statements in one message can't have bound values.
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
    // The savepoint is unknown, or no transaction is open.
    'no-savepoint': ['3B001', '25P01'],
    'no-table': ['42P01'],
    // Missing column, missing primary key.
    'other-table': ['42703', '42P10'],
    'no-database': ['3D000'],
    login: ['28000', '28P01'],
    'read-only': ['25006'],
    // Missing privileges or row-level security, unknown SQL or setting value.
    refused: ['42501', '42601', '22023'],
  },
};

/** Postgres 13 or later, with the pg driver. */
function postgresDialect(source: SqlSource, connectionTimeoutMillis: number, inSessions: boolean): Dialect {
  /** Names of prepared statements, by statement text. */
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
      // Every account may call the function, unless that right was revoked or the server only resembles Postgres.
      // Checking the privilege in the same statement would fail too.
      if (!NO_SYSTEM.includes(propertyOf(error, 'code')) || system !== SYSTEM) throw error;
      system = 'NULL';
      return firstRow(await run(factsSql(system)));
    }
  };
  /** The result format of the application's statements, set by the first connection. */
  let isBinary = false;
  return {
    async connect() {
      const { driver, settings } = await source.load();
      const client = new (driver as PostgresDriver).Client(
        driverSettings(settings, KEEP_ALIVE, { connectionTimeoutMillis }),
      );
      // On a client with binary results, a single statement can't request text; the reverse works.
      isBinary = client.binary === true;
      client.binary = false;
      // With query_timeout, pg would abandon a statement that the server is still running, and a lock could be granted
      // to no one. The option may also come from a URL or pg's defaults.
      if (client.connectionParameters) client.connectionParameters.query_timeout = undefined;
      // An error event without a listener would crash the process.
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
        // Use a new name from now on, or no name if all have been used.
        if (names.get(sql) === name) names.delete(sql);
        if (!inSessions || code !== '26000') return askAs();
        // The session was reset, and may have lost its locks along with its prepared statements.
        connection.emit('error', error);
        throw error;
      });
    },
    async setUp(connection: PgClient, run, kind) {
      // An application statement could hide the fact that the server has become read-only.
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
    // Shorter than deadlock_timeout (1 s), after which the server checks for a deadlock and, with log_lock_waits, logs
    // the wait.
    slice: { unit: 100, longest: 900, late: 0 },
    lockRow: (from) => `SELECT false AS read_only ${from} FOR UPDATE`,
    withoutWait: (sql) => sql,
    heartbeat: (isReadOnly, isLent) =>
      `SELECT ${isLent ? isReadOnly.replace(READ_ONLY, READ_ONLY_OF_SERVER) : isReadOnly} AS read_only`,
    uptime: () => Promise.resolve(Infinity),
    // The message may be in any language. Class 08 comes from a pooler that lost its connection to the server.
    isAnswer: (error) =>
      propertyOf(error, 'severity') !== undefined && !String(propertyOf(error, 'code')).startsWith('08'),
    abortsOnError: true,
    // I: idle; T: in a transaction; E: in a failed transaction. pg before 8.17 doesn't report it.
    isInTransaction(connection: PgClient) {
      const status = connection.getTransactionStatus?.();
      return status ? status !== 'I' : undefined;
    },
    lend(connection: PgClient, statement) {
      const send = (config: unknown, values: unknown) => {
        // Streams are passed as objects that submit themselves.
        if (propertyOf(config, 'submit')) return refuseStream();
        return statement(async () => [await connection.query(promised(config, isBinary), values)] as const);
      };
      const query = withCallback(send, (config, values) => send(config, values).then(([result]) => result));
      return {
        query: (config: unknown, values: unknown, callback = propertyOf(config, 'callback') as Callback | undefined) =>
          query(config, values, callback),
      };
    },
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
  // A pooler reports its own process id. A driver that doesn't report one (pg-native) can't be checked.
  const isPooled = typeof processID === 'number' && processID !== pid;
  // Behind a pooler, settings would stay on a connection that other clients use next.
  const mayConfigure = inSessions || !isPooled;
  // The guards for transactions and for idle sessions (Postgres 14 or later). Postgres 17 and later can limit whole
  // transactions, but a lock must last as long as its holder lives.
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
    await run(
      `SELECT ${settings.join(', ')}`,
      [guard, lockWait].map((limit) => String(Math.ceil(limit))),
    );
  }
  // By default, a server notices that its client was killed only at the end of a statement. On some operating systems
  // it can't check earlier and rejects the setting.
  if (!autocommit) await run(NOTICE_DEATH).catch(() => undefined);
  const readOnly: string[] = [];
  if (facts?.['standby'] === true)
    readOnly.push('This server is a standby. Configure the provider with the address of the primary.');
  if (facts?.['read_only'] === 'on') {
    readOnly.push(
      'Transactions are read-only here. Configure the provider with the address of the writer, or set default_transaction_read_only to off for this database or role.',
    );
  }
  const unsafe: string[] = [];
  if (!mayConfigure && facts?.['isolation'] !== 'read committed') {
    unsafe.push(
      `The isolation level is ${String(facts?.['isolation'])}, which cannot be changed behind a pooler. Set default_transaction_isolation to 'read committed' for this role.`,
    );
  }
  if (isPooled && inSessions) {
    unsafe.push(
      'The server is behind a pooler such as PgBouncer. In transaction mode, a pooler shares session locks and settings with other clients. Connect directly to the server, or use the version lock. If the pooler is in session mode, set allowUnsafeTopology.',
    );
  }
  return {
    server: ['system', 'started', 'port'].map((name) => facts?.[name]).join(' '),
    // Match the start time as well, because the operating system reuses process ids. Behind a pooler, other connections
    // have the same id.
    kill: isPooled
      ? undefined
      : `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ${pid} AND ${BEGUN} = ${begun}`,
    ...{ unsafe, readOnly },
    isReadOnly: `${IS_STANDBY} OR ${READ_ONLY} = 'on'`,
    // Don't prepare statements if the application may send DEALLOCATE, or if the next statement may go to another
    // server process.
    prepares: autocommit && !isPooled,
    catchesErrors: isTrue(facts?.['plpgsql']),
    lockTable: Number(facts?.['places']),
    maxConnections: Number(facts?.['most']),
  };
}

/** Sends several statements in one message, which can't have bound values. Resolves to the last result. */
function together(connection: PgClient, statements: readonly string[]): Promise<unknown> {
  return ask(connection, { text: statements.join('; '), types: TYPES }, undefined);
}

/**
 * Uses a callback, because otherwise the driver creates two promises to give errors the caller's stack, which is
 * useless here.
 */
function ask(connection: PgClient, statement: object, values: unknown): Promise<unknown> {
  return new Promise((resolve, reject) => {
    connection.query(statement, values, (error, result) => {
      if (error) reject(error);
      else resolve(answerOf(result as Result | readonly Result[]));
    });
  });
}

/** Returns the result of the last statement. */
function answerOf(results: Result | readonly Result[]): unknown {
  const result = Array.isArray(results) ? (results.at(-1) as Result) : (results as Result);
  return result.fields.length > 0 ? result.rows : result;
}

/** Inserts the value, a row name, into the statement's text. */
const withValue = (sql: string, name: string) => sql.replace('$1', literal(name));

/**
 * Waits, within these limits, for the lock that a SELECT with one value takes. Failures are caught, because the server
 * would otherwise log an error every second. The DO has the same text for all values, because pg_stat_statements counts
 * each text separately.
 *
 * @param value as an SQL literal
 */
function waitQuietly(select: string, value: string, limits: TimeLimits, catchesErrors = false): string {
  const limit = setLimits(limits, true);
  if (!catchesErrors) return `${limit}; ${select.replace('$1', value)}`;
  const perform = select.replace(/^SELECT/, 'PERFORM').replace('$1', `current_setting('distributed_lock.name')`);
  const wait = `DO $wait$ BEGIN ${perform}; EXCEPTION WHEN lock_not_available THEN NULL; END $wait$`;
  return `${limit}, set_config('distributed_lock.name', ${value}, true); ${wait}`;
}

/** Sets the guard for a transaction or a session (Postgres 14 or later). */
function setLimits({ guard, lockWait }: TimeLimits, inTransaction: boolean): string {
  const name = inTransaction ? 'idle_in_transaction_session_timeout' : 'idle_session_timeout';
  const set = (setting: string, value: number) => `set_config('${setting}', '${Math.ceil(value)}', ${inTransaction})`;
  return `SELECT ${set(name, guard)}, ${set('lock_timeout', lockWait)}`;
}

/**
 * The statement without its callback, because pg returns no promise if there is one. Inherits from the statement, whose
 * `text` may be a getter of its class.
 */
function promised(statement: unknown, isBinary: boolean): unknown {
  if (!isBinary && !propertyOf(statement, 'callback')) return statement;
  const own = Object.getOwnPropertyDescriptors({ callback: undefined, ...(isBinary && { binary: true }) });
  return Object.create(typeof statement === 'string' ? { text: statement } : (statement as object), own) as object;
}

/** Quotes a row name, whose characters need no escaping. */
function literal(name: string): string {
  if (/^[A-Za-z0-9_.:@/=+,#-]+$/.test(name)) return `'${name}'`;
  throw new Error('The row name contains an invalid character.');
}
