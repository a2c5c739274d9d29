import type { EventEmitter } from 'node:events';
import type { DataSourceOptions } from 'typeorm';
import {
  type Dialect,
  type DriverConnection,
  driverErrorOf,
  type Failure,
  firstRow,
  type OpenStream,
  propertyOf,
  type Run,
  type SendStatement,
  type Weakness,
} from './dialect.js';
import { createTableSql, quotedTable, SERVER_TIME } from './table-layout.js';

type Callback = (error: Error | null, answer?: unknown, fields?: unknown) => void;

/** The part of a PoolConnection of mysql2 that is used here. */
interface MysqlConnection extends DriverConnection {
  query(sql: unknown, values: unknown, callback?: Callback): EventEmitter;
  destroy?(): void;
}

// In seconds; the largest that both servers take. A wait ends by its caller, who ends the connection.
const LONGEST_LOCK_WAIT = 1_073_741_824;

// MariaDB from 10.3 on; MySQL knows none of them.
const IDLE_TRANSACTION = [
  'idle_transaction_timeout',
  'idle_readonly_transaction_timeout',
  'idle_write_transaction_timeout',
];

// SERVER_STATUS_IN_TRANS of the protocol.
const IN_TRANSACTION = 1;

/** MySQL from 8.0.1 and MariaDB from 10.6 on, by the driver mysql2. `version`: what the server answers to VERSION(). */
export function mysqlDialect(table: string, version: string): Dialect {
  const name = quotedTable('mysql', table);
  const isMariaDb = version.includes('MariaDB');
  // MariaDB does not know FOR SHARE, MySQL does not know LOCK IN SHARE MODE with SKIP LOCKED.
  const clause = { exclusive: 'FOR UPDATE', shared: isMariaDb ? 'LOCK IN SHARE MODE' : 'FOR SHARE' };
  return {
    send: (connection: MysqlConnection, sql, parameters) =>
      new Promise((resolve, reject) => {
        connection.query(sql, parameters, (error, answer) => {
          if (error) reject(error);
          else resolve(answer);
        });
      }),
    async setUp(run, guard, lockWait) {
      const settings = [
        // The guard: both servers have it, in whole seconds; rounded up, because the holder counts by the exact time.
        `wait_timeout = ${Math.ceil(guard / 1000)}`,
        `innodb_lock_wait_timeout = ${Math.min(Math.ceil(lockWait / 1000), LONGEST_LOCK_WAIT)}`,
        `${isMariaDb ? 'tx_isolation' : 'transaction_isolation'} = 'READ-COMMITTED'`,
        // With the server's own at 0 a lease or a token would stay uncommitted, and be gone with the connection.
        'autocommit = 1',
        // An application may have a limit for its own statements; a wait for a lock is none of these.
        `${isMariaDb ? 'max_statement_time' : 'max_execution_time'} = 0`,
        // In a transaction these go before wait_timeout, and would free the lock earlier than its holder counts.
        ...(isMariaDb ? IDLE_TRANSACTION.map((limit) => `${limit} = 0`) : []),
      ];
      // One statement and one round trip.
      await run(`SET ${settings.map((setting) => `SESSION ${setting}`).join(', ')}`);
      return `KILL CONNECTION ${Number(firstRow(await run('SELECT CONNECTION_ID() AS id'))?.['id'])}`;
    },
    tryLock: (mode) => `SELECT 1 FROM ${name} WHERE name = ? ${clause[mode]} SKIP LOCKED`,
    awaitLock: (mode) => `SELECT 1 FROM ${name} WHERE name = ? ${clause[mode]}`,
    findRow: `SELECT 1 FROM ${name} WHERE name = ?`,
    // The check for a duplicate waits for whoever holds the row, which must then exist. MySQL waits for a second at least.
    createRow: `${isMariaDb ? 'SET STATEMENT innodb_lock_wait_timeout = 0 FOR ' : ''}INSERT IGNORE INTO ${name} (name, expires) VALUES (?, ${SERVER_TIME.mysql})`,
    async nextToken(run, row) {
      const answer = await run(
        `UPDATE ${name} SET token = LAST_INSERT_ID(GREATEST(token + 1, ${SERVER_TIME.mysql})) WHERE name = ?`,
        [row],
      );
      if (propertyOf(answer, 'affectedRows') !== 1) return undefined;
      return BigInt(String(propertyOf(answer, 'insertId')));
    },
    heartbeat: 'DO 0',
    findTable: `SELECT 1 FROM ${name} LIMIT 0`,
    createTable: createTableSql('mysql', table),
    classify,
    isNoSavepoint: (error) => propertyOf(error, 'errno') === 1305,
    isAnswer: (error) => propertyOf(error, 'sqlState') !== undefined,
    // The summary of a statement without rows bears the status of the server. Rows come without it in mysql2.
    isInTransaction(_, answer) {
      const status = Array.isArray(answer) ? undefined : propertyOf(answer, 'serverStatus');
      return typeof status === 'number' ? (status & IN_TRANSACTION) !== 0 : undefined;
    },
    lend,
    // The connection is one of mysql2's pool, which it leaves by this.
    sever: (connection: MysqlConnection) => connection.destroy?.(),
    examine,
  };
}

/**
 * TypeORM 1 asks by `promise()`, 0.3 by a callback; who streams gives none. Of a statement with a time limit (`enableQueryTimeout`) only the
 * text is sent: the driver would give it up while the server goes on with it, and the next one could end up behind the transaction.
 */
function lend(connection: MysqlConnection, statement: SendStatement, stream: OpenStream): object {
  const send = (sql: unknown, values: unknown) =>
    statement(
      () =>
        new Promise<[answer: unknown, fields: unknown]>((resolve, reject) => {
          connection.query(propertyOf(sql, 'sql') ?? sql, values, (error, answer, fields) => {
            if (error) reject(error);
            else resolve([answer, fields]);
          });
        }),
    );
  return {
    promise: () => ({ query: send }),
    query(sql: unknown, values: unknown, callback?: Callback): unknown {
      if (!callback) return stream(() => connection.query(sql, values), 'end');
      return send(sql, values).then(([answer, fields]) => {
        callback(null, answer, fields);
      }, callback);
    },
  };
}

/** The options of a pool of our own on the writer. */
export function ownMysqlPool(options: DataSourceOptions, size: number, patience: number): DataSourceOptions {
  const { replication, ...rest } = options as DataSourceOptions & { replication?: { master?: object } };
  return {
    ...rest,
    // Locks live on the writer alone.
    ...replication?.master,
    connectTimeout: patience,
    extra: { ...(rest.extra as object | undefined), connectionLimit: size },
  } as DataSourceOptions;
}

// MariaDB's NOWAIT too.
const LOCK_WAIT_TIMEOUT = 1205;
// 3572 NOWAIT of MySQL, 1969 max_statement_time of MariaDB.
const BUSY: readonly unknown[] = [LOCK_WAIT_TIMEOUT, 3572, 1969];
// 1213 deadlock; 3058 deadlock of user locks (MySQL); 1020 the row has changed since the snapshot (innodb_snapshot_isolation of MariaDB).
const ROLLED_BACK: readonly unknown[] = [1213, 3058, 1020];

function classify(error: unknown): Failure {
  const errno = propertyOf(driverErrorOf(error), 'errno');
  if (BUSY.includes(errno)) return 'busy';
  if (ROLLED_BACK.includes(errno)) return 'rolled-back';
  return errno === 1146 ? 'no-table' : 'other';
}

// Whether the account may write all the same (root writes on a server with read_only) is not the question: others lock on
// the writer.
const READ_ONLY = ['read_only', 'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only'];

async function examine(run: Run): Promise<readonly Weakness[]> {
  const names = ['wsrep_on', 'group_replication_single_primary_mode', ...READ_ONLY];
  const rows = await run(`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('${names.join("', '")}')`);
  const variables = new Map(
    (rows as readonly object[]).map((row) => [propertyOf(row, 'Variable_name'), propertyOf(row, 'Value')]),
  );
  const found: Weakness[] = [];
  if (variables.get('wsrep_on') === 'ON') {
    found.push({
      severity: 'error',
      message:
        'This server is a node of a Galera cluster: what one node grants is unknown to the others until it has been sent around, so two may hold a lock at once. Send the locks of all processes to one and the same node, or use another provider.',
    });
  }
  if (variables.get('group_replication_single_primary_mode') === 'OFF') {
    found.push({
      severity: 'error',
      message:
        'Group Replication runs with several primaries: what one grants is unknown to the others until it has been sent around. Use a single primary.',
    });
  }
  // Newer servers have more values than ON.
  const readOnly = READ_ONLY.find((name) => (variables.get(name) ?? 'OFF') !== 'OFF');
  if (readOnly !== undefined) {
    found.push({
      severity: 'error',
      message: `This server is read-only (${readOnly}): give the provider the address of the writer.`,
    });
  }
  return found;
}
