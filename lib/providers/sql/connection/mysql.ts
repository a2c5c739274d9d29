import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { promisify } from 'node:util';
import { LockConfigError } from '../../../api/errors.js';
import { refuseOlder } from '../../shared/oldest-version.js';
import { firstRow, propertyOf, type Run, textOf } from './answer.js';
import { userLockName } from '../advisory/advisory-name.js';
import {
  refuseStream,
  type Dialect,
  type DriverConnection,
  driverSettings,
  type DriverSource,
  type Family,
  type OfMany,
  type SendStatement,
  type ServerFacts,
  type TimeLimits,
} from './dialect.js';

type Callback = (error: Error | null, answer?: unknown, fields?: unknown) => unknown;

/** The part of a Connection of mysql2 that is used here. */
interface MysqlConnection extends DriverConnection {
  query(sql: unknown, values: unknown, callback: Callback): unknown;
  execute(sql: unknown, values: unknown, callback: Callback): unknown;
  emit(event: 'error', error: unknown): void;
  connect(callback: (error: Error | null) => void): void;
  changeUser(options: object, callback: (error: Error | null) => void): void;
  end(callback: () => void): unknown;
  readonly stream: Duplex;
  /** As the server reported it when the connection was opened. */
  readonly threadId: number;
  /** How it gives its answers, unless a statement says otherwise. */
  readonly config?: { readonly rowsAsArray?: unknown; readonly nestTables?: unknown; readonly typeCast?: unknown };
}

export interface MysqlDriver {
  createConnection(settings: object): MysqlConnection;
}

export type MysqlSource = DriverSource<'mysql', MysqlDriver>;

// Between two heartbeats a connection sends nothing. So only the system can notice early that it is gone: it asks each second from here on, and
// gives up after ten.
const KEEP_ALIVE = { enableKeepAlive: true, keepAliveInitialDelay: 10_000 };

// In seconds; the largest that both servers take, in strict mode as well. A wait ends by its caller, who ends the connection.
const LONGEST_LOCK_WAIT = 100_000_000;

// Other modes change what our statements mean: '' may be NULL, and a backslash may be text, by which mysql2 escapes a quote in a value.
const OUR_SQL_MODE = `'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'`;
// Backslashes escape there as well. Not '', which may be NULL: then no mode at all would be left.
const MODE_OF_APPLICATION = `REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ',')`;

// MariaDB from 10.3 on; MySQL knows none of them.
const IDLE_TRANSACTION = [
  'idle_transaction_timeout',
  'idle_readonly_transaction_timeout',
  'idle_write_transaction_timeout',
];

// MySQL says it to a client that was silent for too long. It has not seen what was sent meanwhile.
const FAREWELL = 4031;

// Settings of the application for the answers to its own statements do not change those to ours. A function that casts, because that of a
// connection would precede a mere `true`.
const PLAIN = { rowsAsArray: false, nestTables: false, typeCast: (_field: unknown, next: () => unknown) => next() };

// SERVER_STATUS_IN_TRANS of the protocol.
const IN_TRANSACTION = 1;

const MYSQL_NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;

// Out of range, an error, on a server that is read-only: from MariaDB 12 on the variable is a word. Accounts with SUPER or READ ONLY ADMIN may
// write there nevertheless, while others lock on the new writer.
const ZERO_ON_A_WRITER = `CAST(0 * (~0 + (CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF'))) AS SIGNED)`;

/** The same SELECT for each name. */
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
 * No UPDATE … RETURNING here (MariaDB has it for INSERT and DELETE only). LAST_INSERT_ID(expression) is evaluated for the row that is
 * updated, under its lock, and comes back in the packet that reports the update, so no other statement can come between.
 */
export const mysql: Family = {
  value: () => '?',
  isAmong: (column, _, count) => `${column} IN (${Array(count).fill('?').join(', ')})`,
  list: (values) => values,
  now: MYSQL_NOW,
  nowOnWriter: `(${MYSQL_NOW} + ${ZERO_ON_A_WRITER})`,
  greatest: 'GREATEST',
  // IGNORE alone would wait. MariaDB can be told not to, MySQL cannot.
  insertKey: (table) =>
    `INSERT IGNORE INTO ${table} (name, expires, label) SELECT a.name, ${MYSQL_NOW}, a.label ` +
    `FROM (SELECT ? AS name, ? AS label) AS a LEFT JOIN ${table} AS b ON b.name = a.name WHERE b.name IS NULL`,
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = LAST_INSERT_ID(${expression})${rest}`,
  tokenOf: (answer) => (mysql.changed(answer) === 1 ? BigInt(String(propertyOf(answer, 'insertId'))) : undefined),
  // For a list of names both servers may scan the table, lock other rows, and wait for those that are held (measured on MariaDB 10.11 and
  // MySQL 9.7). Joined in this order and by force, each row is found by its primary key. With LIMIT the inner table is not merged into the
  // outer one, which MySQL would refuse.
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
  // Other storage engines take no locks on rows, and without a primary key one key would have many rows.
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
  // Of user locks, by GET_LOCK.
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
    // Lock wait timeout and NOWAIT of MariaDB, NOWAIT of MySQL, max_statement_time of MariaDB, max_execution_time of MySQL, KILL QUERY.
    busy: [1205, 3572, 1969, 3024, 1317],
    // Deadlock, deadlock of user locks (MySQL), the row has changed since the snapshot (innodb_snapshot_isolation of MariaDB), the table of locks
    // is full.
    'rolled-back': [1213, 3058, 1020, 1206],
    'no-savepoint': [1305],
    'no-table': [1146],
    'other-table': [1054],
    'no-database': [1044, 1049],
    login: [1045, 1698, 3118, 4151, 1820, 1862],
    // The last number is the answer to our own question for it.
    'read-only': [1036, 1290, 1792, 1836, 1874, 3989, 1690],
    // Missing privileges, READ COMMITTED with binlog_format=STATEMENT, SQL or a value of a setting that the server does not know.
    refused: [1142, 1143, 1227, 1665, 1064, 1231],
  },
};

/** MySQL from 8.0.1 and MariaDB from 10.6 on, by the driver mysql2. */
export function mysqlDialect(source: MysqlSource, connectTimeout: number): Dialect {
  // Known from the first connection on.
  let isMariaDb = false;
  let question: { readonly version: string; readonly isReadOnly: string } | undefined;
  return {
    async connect() {
      const { driver, settings } = await source.load();
      const all = driverSettings(settings, KEEP_ALIVE, { connectTimeout });
      if (typeof propertyOf(all, 'queryFormat') === 'function') {
        throw new LockConfigError(
          'The option "queryFormat" of mysql2 replaces how values get into a statement, and those of the locks would not work by it. Leave it out of "mysql", or out of "extra" of the DataSource.',
        );
      }
      const connection = driver.createConnection(all);
      // The driver mysql would end the process when a connection is closed from outside.
      if (typeof propertyOf(connection, 'execute') !== 'function') {
        // That of mysql2/promise would stay open, or end the process when it fails.
        if (connection instanceof Promise) {
          const close = (late: MysqlConnection) => late.end(() => undefined);
          connection.then(close, () => undefined);
        }
        throw new LockConfigError(
          'Locks on MySQL and MariaDB need the driver mysql2, and the driver of the DataSource is another one. Give mysql2 as its "driver", or install mysql2 and leave "driver" out.',
        );
      }
      // An error without a listener would end the process.
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
        // At 0 a lease or a token would stay uncommitted, and be gone with the connection. But a row lock saves a round trip: its first
        // statement begins the transaction. And statements after a COMMIT that nobody noticed are not committed.
        `autocommit = ${kind.autocommit ? 1 : 0}`,
        // Only a session without autocommit also runs statements of the application, which expects its own mode there.
        `sql_mode = ${kind.autocommit ? OUR_SQL_MODE : MODE_OF_APPLICATION}`,
        // An application may limit its own statements; a wait for a lock is not one of these.
        `${isMariaDb ? 'max_statement_time' : 'max_execution_time'} = 0`,
        // MariaDB refuses a DELETE by a list of names in it. It stays where the application may send statements.
        ...(kind.autocommit ? ['sql_safe_updates = 0'] : []),
        // In a transaction these precede wait_timeout, and would free the lock earlier than its holder computes.
        ...(isMariaDb ? IDLE_TRANSACTION.map((limit) => `${limit} = 0`) : []),
      ];
      await run(setSession(settings));
      const asked =
        question?.version === version ? question : { version, isReadOnly: await isReadOnlyBy(variables, run) };
      question = asked;
      return {
        // MariaDB derives its own from the network card and the port.
        server: IDENTITY.map((name) => variables.get(name)).join(' '),
        kill: `KILL CONNECTION ${threadId}`,
        ...diagnose(variables),
        isReadOnly: asked.isReadOnly,
        prepares: false,
        catchesErrors: false,
        // A user lock takes memory of the server, 1 to 2 KB, and statements of others are as fast beside 60 000 of them (measured on both servers).
        lockTable: undefined,
        maxConnections: Number(variables.get('max_connections')),
      };
    },
    beginWith: (connection: MysqlConnection, sql, value) => send(connection, sql, [value]),
    async beginWait(connection: MysqlConnection, select, value, limits) {
      await send(connection, setSession(limitsOf(limits)), []);
      return send(connection, select, [value]);
    },
    // InnoDB looks once a second whether a wait is over.
    slice: { unit: 1_000, longest: 3_000, late: 1_000 },
    // COM_RESET_CONNECTION would keep the database of a USE, and MariaDB the character set of its own. This is as a new login.
    reset: (connection: MysqlConnection) => promisify(connection.changeUser.bind(connection))({}),
    setLimits: (limits, _, isReadOnly) => `${setSession(limitsOf(limits))}, ${failIf(isReadOnly)}`,
    refusesRowLocks: false,
    forMode(mode) {
      if (mode === 'exclusive') return 'FOR UPDATE';
      // MariaDB does not know FOR SHARE, MySQL does not know LOCK IN SHARE MODE with SKIP LOCKED.
      return isMariaDb ? 'LOCK IN SHARE MODE' : 'FOR SHARE';
    },
    withoutWait: (sql) => (isMariaDb ? `SET STATEMENT innodb_lock_wait_timeout = 0 FOR ${sql}` : sql),
    heartbeat: (isReadOnly) => `SET ${failIf(isReadOnly)}`,
    async uptime(run) {
      // In whole seconds, and up to one too many.
      return 1_000 * (Number(firstRow(await run(`SHOW GLOBAL STATUS LIKE 'Uptime'`))?.['Value']) - 1);
    },
    isAnswer: (error) => propertyOf(error, 'sqlState') !== undefined && propertyOf(error, 'errno') !== FAREWELL,
    // The summary of a statement without rows contains the status of the server. Rows come without it in mysql2.
    isInTransaction(_, answer) {
      const status = Array.isArray(answer) ? undefined : propertyOf(answer, 'serverStatus');
      return typeof status === 'number' ? (status & IN_TRANSACTION) !== 0 : undefined;
    },
    lend,
    async close(connection: MysqlConnection) {
      // The driver calls back before it has sent the message.
      const closed = once(connection.stream, 'close');
      connection.end(() => undefined);
      await closed;
    },
    // The driver's own destroy() waits for what was written to arrive.
    sever: ({ stream }: MysqlConnection) => stream.destroy(),
  };
}

/**
 * For a statement without rows, whose answer has the status of the server: an assignment that goes out of range where this is true. DO would ignore
 * the error.
 */
const failIf = (condition: string) => `@distributed_lock = ~0 + (${condition})`;

const setSession = (settings: readonly string[]) => `SET ${settings.map((setting) => `SESSION ${setting}`).join(', ')}`;

/** In whole seconds; rounded up, because the holder counts by the exact time. */
const limitsOf = ({ guard, lockWait }: TimeLimits): readonly string[] => [
  `wait_timeout = ${Math.ceil(guard / 1000)}`,
  `innodb_lock_wait_timeout = ${Math.min(Math.ceil(lockWait / 1000), LONGEST_LOCK_WAIT)}`,
];

/** Sends a statement of ours. */
function send(connection: MysqlConnection, sql: string, values: readonly unknown[]): Promise<unknown> {
  const { rowsAsArray, nestTables, typeCast } = connection.config ?? {};
  // As an object only where it must be: the driver copies it, twice, which took a tenth of the time of sixteen callers. A text without characters nests
  // tables, too.
  const isPlain = !rowsAsArray && (nestTables === undefined || nestTables === false) && typeCast === true;
  const statement = isPlain ? sql : { sql, ...PLAIN };
  return new Promise((resolve, reject) => {
    ask(connection, 'query', statement, values, resolve, reject);
  });
}

type Answered = Promise<[answer: unknown, fields: unknown]>;

function ask(
  connection: MysqlConnection,
  method: 'query' | 'execute',
  sql: unknown,
  values: unknown,
  resolve: (answer: unknown, fields: unknown) => void,
  reject: (error: unknown) => void,
): void {
  connection[method](sql, values, (error, answer, fields) => {
    if (!error) {
      resolve(answer, fields);
      return;
    }
    // mysql2 reports the end of a connection either to the statement in flight or as this event.
    if (propertyOf(error, 'fatal') === true) connection.emit('error', error);
    reject(error);
  });
}

function answerBy(connection: MysqlConnection, method: 'query' | 'execute', sql: unknown, values: unknown): Answered {
  return new Promise((resolve, reject) => {
    const onAnswer = (...answer: [unknown, unknown]) => {
      resolve(answer);
    };
    ask(connection, method, sql, values, onAnswer, reject);
  });
}

/** The same statement. Its text and values may be getters of a class, which the driver reads, and which a copy leaves out. */
function withoutTimeout(statement: unknown): unknown {
  if (typeof statement !== 'object' || statement === null) return statement;
  const [sql, values] = [propertyOf(statement, 'sql'), propertyOf(statement, 'values')];
  return { ...statement, sql, values, timeout: undefined };
}

/**
 * TypeORM 1 and Drizzle ask by `promise()`, TypeORM 0.3, Kysely and Knex by a callback. Without one the rows would be streamed. A statement loses its
 * time limit: the driver would give it up while the server goes on with it, and the next one could end up behind the transaction.
 */
function lend(connection: MysqlConnection, statement: SendStatement): object {
  const inTurn =
    (method: 'query' | 'execute') =>
    (sql: unknown, values: unknown): Answered =>
      statement(() => answerBy(connection, method, withoutTimeout(sql), values));
  const withCallback =
    (send: ReturnType<typeof inTurn>) =>
    (sql: unknown, values: unknown, callback?: Callback): unknown => {
      const [given, done] = typeof values === 'function' ? [undefined, values as Callback] : [values, callback];
      if (!done) return refuseStream();
      return send(sql, given).then(([answer, fields]) => done(null, answer, fields), done);
    };
  const [asText, prepared] = [inTurn('query'), inTurn('execute')];
  return {
    promise: () => ({ query: asText, execute: prepared }),
    query: withCallback(asText),
    execute: withCallback(prepared),
  };
}

// What keeps a server from being written. An account may write nevertheless (root writes on a server with read_only), but others lock on the writer.
const READ_ONLY = ['read_only', 'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only'];
// Two servers of one machine may have copies of one folder and the same port, each at another address; but not the same folder.
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

/** By those variables that this server has. Most are numbers; as text, each would take 3 µs (measured on MariaDB 10.11). From MariaDB 12 on one is a word. */
async function isReadOnlyBy(variables: ReadonlyMap<unknown, unknown>, run: Run): Promise<string> {
  const known = READ_ONLY.filter((name) => variables.has(name));
  const values = firstRow(
    await run(`SELECT ${known.map((name) => `@@global.${name} AS ${name}`).join(', ') || 'NULL'}`),
  );
  const isTrueOf = (name: string) =>
    Number.isNaN(Number(values?.[name])) ? `CAST(@@global.${name} AS CHAR) NOT IN ('0', 'OFF')` : `@@global.${name}`;
  return known.map(isTrueOf).join(' OR ') || 'false';
}

function diagnose(variables: ReadonlyMap<unknown, unknown>): Pick<ServerFacts, 'diagnostics' | 'refusesWrites'> {
  const found: string[] = [];
  if (variables.get('wsrep_on') === 'ON') {
    found.push(
      'This server is a node of a Galera cluster: what one node grants is unknown to the others until it has been replicated, so two callers may hold a lock at the same time. Send the locks of all processes to the same node, or use another provider.',
    );
  }
  if (variables.get('group_replication_single_primary_mode') === 'OFF') {
    found.push(
      'Group Replication runs with several primaries: what one grants is unknown to the others until it has been replicated. Use a single primary.',
    );
  }
  // Newer servers have more values than ON.
  const readOnly = READ_ONLY.find((name) => (variables.get(name) ?? 'OFF') !== 'OFF');
  const refusesWrites = readOnly !== undefined && found.length === 0;
  if (readOnly !== undefined)
    found.push(`This server is read-only (${readOnly}): give the provider the address of the writer.`);
  return { diagnostics: found.map((message) => ({ severity: 'error', message })), refusesWrites };
}
