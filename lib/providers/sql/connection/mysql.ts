import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { promisify } from 'node:util';
import { LockConfigError } from '../../../api/errors.js';
import { refuseOlder } from '../../shared/oldest-version.js';
import { firstRow, propertyOf, type Run, textOf } from './answer.js';
import { userLockName } from '../advisory/advisory-name.js';
import {
  type Callback,
  type Dialect,
  type DriverConnection,
  driverSettings,
  type Family,
  type OfMany,
  refuseStream,
  type SendStatement,
  type ServerFacts,
  type SqlSource,
  type TimeLimits,
  withCallback,
} from './dialect.js';

/** The part of a mysql2 Connection that is used here. */
interface MysqlConnection extends DriverConnection {
  query(sql: unknown, values: unknown, callback: Callback): unknown;
  execute(sql: unknown, values: unknown, callback: Callback): unknown;
  emit(event: 'error', error: unknown): void;
  connect(callback: (error: Error | null) => void): void;
  changeUser(options: object, callback: (error: Error | null) => void): void;
  end(callback: () => void): unknown;
  readonly stream: Duplex;
  /** The thread id, as reported when the connection was opened. */
  readonly threadId: number;
  /** The answer format, unless a statement overrides it. */
  readonly config?: { readonly rowsAsArray?: unknown; readonly nestTables?: unknown; readonly typeCast?: unknown };
}

interface MysqlDriver {
  createConnection(settings: object): MysqlConnection;
}

// A connection is silent between heartbeats, so only TCP can detect a dead one early. After this delay, TCP sends a
// keep-alive probe every second and gives up after ten.
const KEEP_ALIVE = { enableKeepAlive: true, keepAliveInitialDelay: 10_000 };

// Other modes change what our statements mean: '' may become NULL, and the backslash with which mysql2 escapes quotes
// may become literal.
const OUR_SQL_MODE = `'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'`;
// Backslashes must work as escapes here too. Don't replace with '': it may mean NULL, which would remove all modes.
const MODE_OF_APPLICATION = `REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ',')`;

// MariaDB 10.3 and later; unknown to MySQL.
const IDLE_TRANSACTION = [
  'idle_transaction_timeout',
  'idle_readonly_transaction_timeout',
  'idle_write_transaction_timeout',
];

// MySQL sends this to a client that has been silent for too long. Statements sent in the meantime were not executed.
const FAREWELL = 4031;

// Settings for the application's answers must not affect ours. Use a typeCast function, because
// a connection's setting would take precedence over `true`.
const PLAIN = { rowsAsArray: false, nestTables: false, typeCast: (_field: unknown, next: () => unknown) => next() };

// SERVER_STATUS_IN_TRANS in the protocol.
const IN_TRANSACTION = 1;

const MYSQL_NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;

// On a read-only server, the value is out of range and causes an error. Otherwise, accounts with SUPER or READ ONLY
// ADMIN could still write there while others lock on the new writer. Since MariaDB 12, the variable's value is a word.
const ZERO_ON_A_WRITER = `CAST(0 * (~0 + (CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF'))) AS SIGNED)`;

/** Repeats a SELECT for each name. */
function forEach(expression: string): OfMany {
  return ([first = '', ...others], isReadOnly) => {
    const one = `SELECT ${expression} AS done`;
    const [asked, other] =
      isReadOnly === undefined ? ['', ''] : [`, ${isReadOnly} AS read_only`, ', false AS read_only'];
    return [`${one}${asked}${` UNION ALL ${one}${other}`.repeat(others.length)}`, [first, ...others]];
  };
}

const tryUserLock = forEach('GET_LOCK(?, 0)');
const unlockUserLock = forEach('COALESCE(RELEASE_LOCK(?), 0)');

/**
 * MySQL and MariaDB have no UPDATE … RETURNING (MariaDB supports RETURNING only for INSERT and DELETE).
 * LAST_INSERT_ID(expression) is evaluated for the updated row, under its lock, and returned in the packet that reports
 * the update, so no other statement can interfere.
 */
export const mysql: Family = {
  dialectFor: mysqlDialect,
  value: () => '?',
  isAmong: (column, _, count) => `${column} IN (${Array(count).fill('?').join(', ')})`,
  list: (values) => values,
  now: MYSQL_NOW,
  nowOnWriter: `(${MYSQL_NOW} + ${ZERO_ON_A_WRITER})`,
  // INSERT IGNORE alone would wait. MariaDB has a setting that prevents it; MySQL doesn't.
  insertKey: (table) =>
    `INSERT IGNORE INTO ${table} (name, expires, label) SELECT a.name, ${MYSQL_NOW}, a.label ` +
    `FROM (SELECT ? AS name, ? AS label) AS a LEFT JOIN ${table} AS b ON b.name = a.name WHERE b.name IS NULL`,
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = LAST_INSERT_ID(${expression})${rest}`,
  tokenOf: (answer) => (mysql.changed(answer) === 1 ? BigInt(String(propertyOf(answer, 'insertId'))) : undefined),
  // With a plain list of names, both servers may scan the table, lock other rows, and wait for locked ones (measured on
  // MariaDB 10.11 and MySQL 9.7). With this forced join order, each row is found by its primary key. The LIMIT keeps
  // the inner table from being merged into the outer one, which MySQL would reject.
  deleteUnlocked: (table, condition, count) =>
    `DELETE a FROM (SELECT name FROM (${Array(count).fill('SELECT ? AS wanted').join(' UNION ALL ')}) AS b ` +
    `STRAIGHT_JOIN ${table} FORCE INDEX (PRIMARY) ON name = wanted WHERE ${condition} LIMIT ${count} FOR UPDATE SKIP LOCKED) AS c ` +
    `STRAIGHT_JOIN ${table} AS a FORCE INDEX (PRIMARY) ON a.name = c.name`,
  changed: (answer) => Number(propertyOf(answer, 'affectedRows') ?? 0),
  positionOf: 'INSTR',
  join: (...texts) => `CONCAT(${texts.join(', ')})`,
  asText: (number) => `CAST(${number} AS CHAR)`,
  quoted: (name) => `\`${name.replaceAll('`', '``')}\``,
  createTable: (table) =>
    `CREATE TABLE IF NOT EXISTS ${table} (name VARBINARY(255) NOT NULL PRIMARY KEY, ` +
    `token BIGINT UNSIGNED NOT NULL DEFAULT 0, holder VARBINARY(32) NULL, expires BIGINT NOT NULL DEFAULT 0, ` +
    `label BLOB NULL, holders MEDIUMBLOB NULL) ENGINE = InnoDB`,
  schemaOf: () => ['SELECT DATABASE() AS name', []],
  // Other storage engines don't lock rows. Without a primary key, one key could have many rows.
  fits: (schema, name) => [
    `SELECT t.ENGINE = 'InnoDB' AND GROUP_CONCAT(c.COLUMN_NAME) = 'name' AS fits FROM information_schema.TABLES t ` +
      `LEFT JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_KEY = 'PRI' ` +
      `WHERE t.TABLE_SCHEMA = COALESCE(?, DATABASE()) AND t.TABLE_NAME = ? GROUP BY t.ENGINE`,
    [schema ?? null, name],
  ],
  views: {
    row: 'performance_schema.data_locks (MySQL), information_schema.innodb_trx (MariaDB)',
    advisory: 'performance_schema.metadata_locks (MySQL), information_schema.metadata_lock_info (MariaDB)',
  },
  // User locks (GET_LOCK)
  advisory: {
    async scopeOf(run) {
      return textOf(firstRow(await run('SELECT DATABASE() AS name'))?.['name']) ?? '';
    },
    nameOf: userLockName,
    tryLock: () => tryUserLock,
    joinReaders: tryUserLock,
    unlock: () => unlockUserLock,
    awaitLock: (name, _, { lockWait }) => [`SELECT GET_LOCK(?, ${Math.ceil(lockWait / 1_000)}) AS done`, [name]],
    unlockAll: 'SELECT RELEASE_ALL_LOCKS()',
  },
  faults: {
    // Lock wait timeout and NOWAIT (MariaDB), NOWAIT (MySQL), max_statement_time (MariaDB), max_execution_time (MySQL),
    // KILL QUERY.
    busy: [1205, 3572, 1969, 3024, 1317],
    // Deadlock, deadlock of user locks (MySQL), row changed since the snapshot (innodb_snapshot_isolation in MariaDB),
    // lock table full.
    'rolled-back': [1213, 3058, 1020, 1206],
    'no-savepoint': [1305],
    'no-table': [1146],
    'other-table': [1054],
    'no-database': [1044, 1049],
    login: [1045, 1698, 3118, 4151, 1820, 1862],
    // The last code comes from ZERO_ON_A_WRITER and `failIf`.
    'read-only': [1036, 1290, 1792, 1836, 1874, 3989, 1690],
    // Missing privileges, READ COMMITTED with binlog_format=STATEMENT, unknown SQL or setting value.
    refused: [1142, 1143, 1227, 1665, 1064, 1231],
  },
};

/** MySQL 8.0.1 and MariaDB 10.6 or later, with the mysql2 driver. */
function mysqlDialect(source: SqlSource, connectTimeout: number, inSessions: boolean): Dialect {
  // Set by the first connection.
  let isMariaDb = false;
  return {
    async connect() {
      const { driver, settings } = await source.load();
      const all = driverSettings(settings, KEEP_ALIVE, { connectTimeout });
      if (typeof propertyOf(all, 'queryFormat') === 'function') {
        throw new LockConfigError(
          'The mysql2 option "queryFormat" changes how values are inserted into statements, which would break the lock statements. Remove it from "mysql", or from "extra" in the DataSource.',
        );
      }
      const connection = (driver as MysqlDriver).createConnection(all);
      // With the old mysql driver, a connection closed by the server would crash the process.
      if (typeof propertyOf(connection, 'execute') !== 'function') {
        // A mysql2/promise connection would stay open, or crash the process if it failed.
        if (connection instanceof Promise) {
          const close = (late: MysqlConnection) => late.end(() => undefined);
          connection.then(close, () => undefined);
        }
        throw new LockConfigError(
          'Locks on MySQL and MariaDB need the mysql2 driver, but the DataSource uses another one. Set its "driver" to mysql2, or install mysql2 and remove "driver".',
        );
      }
      // An error event without a listener would crash the process.
      connection.on('error', () => undefined);
      await promisify(connection.connect.bind(connection))();
      return connection;
    },
    send,
    async setUp({ threadId }: MysqlConnection, run, kind) {
      const variables = await globalVariables(run);
      const version = String(variables.get('version'));
      isMariaDb = version.includes('MariaDB');
      if (isMariaDb) refuseOlder('SQL locks', 'MariaDB', version, '10.6');
      else refuseOlder('SQL locks', 'MySQL', version, '8.0.1');
      const settings = [
        ...limitsOf(kind),
        `${variables.has('transaction_isolation') ? 'transaction_isolation' : 'tx_isolation'} = 'READ-COMMITTED'`,
        // With autocommit off, a lease or a token would stay uncommitted and be lost with the connection. But for a row
        // lock, turning it off saves a round trip, because the first statement begins the transaction. Also, statements
        // after an unnoticed COMMIT aren't committed.
        `autocommit = ${kind.autocommit ? 1 : 0}`,
        // Without autocommit, the session also runs the application's statements, which expect its SQL mode.
        `sql_mode = ${kind.autocommit ? OUR_SQL_MODE : MODE_OF_APPLICATION}`,
        // Limits on the application's statements must not apply to lock waits.
        `${isMariaDb ? 'max_statement_time' : 'max_execution_time'} = 0`,
        // Otherwise, MariaDB rejects a DELETE with a list of names. Left unchanged if the application may send
        // statements, whose waits for tables must end too.
        ...(kind.autocommit ? ['sql_safe_updates = 0'] : [`lock_wait_timeout = ${Math.ceil(kind.lockWait / 1000)}`]),
        // In a transaction, these take precedence over wait_timeout and would free the lock too early.
        ...(isMariaDb ? IDLE_TRANSACTION.map((limit) => `${limit} = 0`) : []),
      ];
      await run(setSession(settings));
      const { id, isReadOnly } = await idAndReadOnly(variables, run);
      // A proxy reports its own id for the connection. On the server, that id may belong to another client.
      const isProxied = id !== undefined && Number(id) !== threadId;
      const { unsafe, readOnly } = diagnose(variables);
      return {
        // server_uid (MariaDB) is derived from the network card and the port.
        server: IDENTITY.map((name) => variables.get(name)).join(' '),
        kill: isProxied ? undefined : `KILL CONNECTION ${threadId}`,
        unsafe: isProxied && inSessions ? [...unsafe, BEHIND_PROXY] : unsafe,
        ...{ readOnly, isReadOnly },
        // There is no limit for user locks: each takes 1 to 2 KB of server memory, and even 60,000 of them don't slow
        // down other statements (measured on both servers).
        maxConnections: Number(variables.get('max_connections')),
      };
    },
    beginWith: (connection: MysqlConnection, sql, value) => send(connection, sql, [value]),
    async beginWait(connection: MysqlConnection, select, value, limits) {
      await send(connection, setSession(limitsOf(limits)), []);
      return send(connection, select, [value]);
    },
    // InnoDB checks once a second whether a wait has ended.
    slice: { unit: 1_000, longest: 3_000, late: 1_000 },
    // COM_RESET_CONNECTION would keep the database chosen with USE and, on MariaDB, the character set. This resets
    // everything, like a new login.
    reset: (connection: MysqlConnection) => promisify(connection.changeUser.bind(connection))({}),
    setLimits: (limits, _, isReadOnly) => `${setSession(limitsOf(limits))}, ${failIf(isReadOnly)}`,
    lockRow(from, mode, isReadOnly) {
      // MariaDB doesn't support FOR SHARE, and MySQL doesn't support LOCK IN SHARE MODE with SKIP LOCKED.
      const share = isMariaDb ? 'LOCK IN SHARE MODE' : 'FOR SHARE';
      return `SELECT ${isReadOnly} AS read_only ${from} ${mode === 'exclusive' ? 'FOR UPDATE' : share}`;
    },
    withoutWait: (sql) => (isMariaDb ? `SET STATEMENT innodb_lock_wait_timeout = 0 FOR ${sql}` : sql),
    heartbeat: (isReadOnly) => `SET ${failIf(isReadOnly)}`,
    async uptime(run) {
      // The server reports whole seconds, up to one second too many.
      return 1_000 * (Number(firstRow(await run(`SHOW GLOBAL STATUS LIKE 'Uptime'`))?.['Value']) - 1);
    },
    isAnswer: (error) => propertyOf(error, 'sqlState') !== undefined && propertyOf(error, 'errno') !== FAREWELL,
    abortsOnError: false,
    // The result of a statement without rows contains the server status. In mysql2, results with rows don't.
    isInTransaction(_, answer) {
      const status = Array.isArray(answer) ? undefined : propertyOf(answer, 'serverStatus');
      return typeof status === 'number' ? (status & IN_TRANSACTION) !== 0 : undefined;
    },
    lend,
    async close(connection: MysqlConnection) {
      // The driver invokes the callback before the message is sent.
      const closed = once(connection.stream, 'close');
      connection.end(() => undefined);
      await closed;
    },
    // The driver's own destroy() first flushes what was written.
    sever: ({ stream }: MysqlConnection) => stream.destroy(),
  };
}

/**
 * An assignment that fails with "out of range" if the condition is true. Unlike DO, it doesn't ignore the error, and
 * since it returns no rows, its result contains the server status.
 */
const failIf = (condition: string) => `@distributed_lock = ~0 + (${condition})`;

const setSession = (settings: readonly string[]) => `SET ${settings.map((setting) => `SESSION ${setting}`).join(', ')}`;

/** In whole seconds, rounded up because the holder uses the exact time. */
const limitsOf = ({ guard, lockWait }: TimeLimits): readonly string[] => [
  `wait_timeout = ${Math.ceil(guard / 1000)}`,
  `innodb_lock_wait_timeout = ${Math.ceil(lockWait / 1000)}`,
];

/** Sends one of our own statements. */
function send(connection: MysqlConnection, sql: string, values: readonly unknown[]): Promise<unknown> {
  const { rowsAsArray, nestTables, typeCast } = connection.config ?? {};
  // Pass an object only if necessary: the driver copies it twice, which took a tenth of the time with sixteen callers.
  // An empty string also enables nestTables.
  const isPlain = !rowsAsArray && (nestTables === undefined || nestTables === false) && typeCast === true;
  const statement = isPlain ? sql : { sql, ...PLAIN };
  return ask(connection, 'query', statement, values, (answer) => answer);
}

function ask<T>(
  connection: MysqlConnection,
  method: 'query' | 'execute',
  sql: unknown,
  values: unknown,
  read: (answer: unknown, fields: unknown) => T,
): Promise<T> {
  return new Promise((resolve, reject) => {
    connection[method](sql, values, (error, answer, fields) => {
      if (!error) {
        resolve(read(answer, fields));
        return;
      }
      // mysql2 reports the end of a connection either to the statement in flight or with this event.
      if (propertyOf(error, 'fatal') === true) connection.emit('error', error);
      reject(error);
    });
  });
}

/**
 * Copies the statement without its timeout. Its text and values may be class getters, which a plain copy would lose.
 */
function withoutTimeout(statement: unknown): unknown {
  if (typeof statement !== 'object' || statement === null) return statement;
  const [sql, values] = [propertyOf(statement, 'sql'), propertyOf(statement, 'values')];
  return { ...statement, sql, values, timeout: undefined };
}

/**
 * TypeORM 1 and Drizzle use `promise()`; TypeORM 0.3, Kysely, and Knex use a callback. Without a callback, rows would
 * be streamed. Timeouts are removed, because the driver would abandon a statement that the server is still running, and
 * the next statement could run after the transaction ends.
 */
function lend(connection: MysqlConnection, statement: SendStatement): object {
  const inTurn = (method: 'query' | 'execute') => (sql: unknown, values: unknown) =>
    statement(() => ask(connection, method, withoutTimeout(sql), values, (...answer) => answer));
  const [asText, prepared] = [inTurn('query'), inTurn('execute')];
  return {
    promise: () => ({ query: asText, execute: prepared }),
    query: withCallback(asText, refuseStream),
    execute: withCallback(prepared, refuseStream),
  };
}

// Variables that make a server read-only. Some accounts can write anyway (root with read_only), but other clients lock
// on the writer.
const READ_ONLY = ['read_only', 'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only'];
// Two servers on one machine may use copies of one data directory and the same port on different addresses, but never
// the same directory.
const IDENTITY = ['server_uuid', 'server_uid', 'hostname', 'port', 'datadir'];
const TOPOLOGY = ['wsrep_on', 'group_replication_single_primary_mode'];
const OTHER_VARIABLES = ['max_connections', 'version', 'transaction_isolation'];

async function globalVariables(run: (sql: string) => Promise<unknown>): Promise<ReadonlyMap<unknown, unknown>> {
  const names = [...READ_ONLY, ...IDENTITY, ...TOPOLOGY, ...OTHER_VARIABLES];
  const rows = await run(`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('${names.join("', '")}')`);
  return new Map(
    (rows as readonly object[]).map((row) => [
      textOf(propertyOf(row, 'Variable_name')),
      textOf(propertyOf(row, 'Value')),
    ]),
  );
}

const BEHIND_PROXY =
  'The server is behind a proxy such as ProxySQL or MaxScale, which may share its connections with other clients. Connect directly to the server, or use the version lock. If each client keeps its own connection, set allowUnsafeTopology.';

/**
 * The connection's id on the server, and the condition {@link ServerFacts.isReadOnly}.
 *
 * Builds the condition from the variables that this server has. They are compared as numbers, because converting each
 * to text takes 3 µs (measured on MariaDB 10.11). Since MariaDB 12, one of the values is a word.
 */
async function idAndReadOnly(variables: ReadonlyMap<unknown, unknown>, run: Run) {
  const known = READ_ONLY.filter((name) => variables.has(name));
  const columns = ['CONNECTION_ID() AS id', ...known.map((name) => `@@global.${name} AS ${name}`)];
  const values = firstRow(await run(`SELECT ${columns.join(', ')}`));
  const isTrueOf = (name: string) =>
    Number.isNaN(Number(values?.[name])) ? `CAST(@@global.${name} AS CHAR) NOT IN ('0', 'OFF')` : `@@global.${name}`;
  return { id: values?.['id'], isReadOnly: known.map(isTrueOf).join(' OR ') || 'false' };
}

function diagnose(variables: ReadonlyMap<unknown, unknown>): Pick<ServerFacts, 'unsafe' | 'readOnly'> {
  const unsafe: string[] = [];
  if (variables.get('wsrep_on') === 'ON') {
    unsafe.push(
      'This server is a Galera cluster node. A lock granted by one node is unknown to the others until it is replicated, so two callers may hold it at once. Send all locks to the same node, or use another provider.',
    );
  }
  if (variables.get('group_replication_single_primary_mode') === 'OFF') {
    unsafe.push(
      'Group Replication has multiple primaries. A lock granted by one is unknown to the others until it is replicated. Use a single primary.',
    );
  }
  // Newer servers have values other than ON and OFF.
  const setting = READ_ONLY.find((name) => (variables.get(name) ?? 'OFF') !== 'OFF');
  const why = `This server is read-only (${setting}). Configure the provider with the address of the writer.`;
  return { unsafe, readOnly: setting === undefined ? [] : [why] };
}
