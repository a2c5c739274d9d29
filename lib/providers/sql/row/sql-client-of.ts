import type { Lock } from '../../../api/lock.js';
import { transactionOf } from './lent-transaction.js';

/** The methods that send statements: the `query` of a Client of pg, or the `query`, `execute` and `promise()` of a Connection of mysql2. */
export interface SqlClient {
  // As in the drivers, whose own types say more: `sqlClientOf<PoolClient>(lock)`.
  query(...statement: never[]): unknown;
}

/**
 * The driver's connection inside the transaction that holds the lock, for an exclusive lock of one key of a row lock provider. Drizzle,
 * Kysely and Knex take it as their connection; give its type as they expect it.
 *
 * The writes through it are committed by the release of the lock, and rolled back when the task under `withLock` or a
 * decorator fails, when the lock is lost, and when the process dies. Statements run one after the other. If the transaction was
 * not committed, or its outcome is unknown, the call rejects with `LockLostError` (unless `onLost: 'ignore'`: do not combine the two).
 *
 * The transaction is READ COMMITTED. Do not begin or end one yourself (`BEGIN`, `COMMIT`, `db.transaction()`), and run nothing in it that
 * commits by itself (DDL and TRUNCATE on MySQL): the lock is lost then. Savepoints are allowed, streams of
 * rows are not.
 *
 * @throws LockLostError when the lock is not held any more
 * @throws LockConfigError when the lock has no such transaction
 */
// The caller alone knows the driver.
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
export function sqlClientOf<Client extends object = SqlClient>(lock: Lock): Client {
  return transactionOf(lock, 'sqlClientOf').client as Client;
}
