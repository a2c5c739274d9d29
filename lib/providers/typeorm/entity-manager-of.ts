import type { EntityManager } from 'typeorm';
import { LockConfigError } from '../../api/errors.js';
import type { Lock } from '../../api/lock.js';
import { transactionOf } from '../sql/row/lent-transactions.js';
import { EntityTransaction } from './entity-transaction.js';

/**
 * The EntityManager of the transaction that holds the lock, for an exclusive lock of one key of a
 * {@link TypeOrmRowLockProvider}. It has the entities and subscribers of the DataSource that the provider was given, once that is initialized.
 *
 * The writes through it are committed by the release of the lock, and rolled back when the task under `withLock` or a
 * decorator fails, when the lock is lost, and when the process dies. Statements run one after the other. If the transaction was
 * not committed, or its outcome is unknown, the call rejects with `LockLostError` (unless `onLost: 'ignore'`: do not combine the two).
 *
 * The transaction is READ COMMITTED. Do not end it yourself, and run nothing in it that commits by itself (DDL and TRUNCATE on MySQL):
 * the lock is lost then: immediately if the server's answer shows it, otherwise at the next heartbeat, and at the latest before the
 * COMMIT. Writes between such an end and its discovery are committed without the lock.
 *
 * One statement that takes longer than the session guard loses the lock. `lock.release()` of a lock taken with
 * `acquire` commits, whatever happened before it.
 *
 * @throws LockLostError when the lock is not held any more.
 * @throws LockConfigError when the lock has no such transaction.
 */
export function entityManagerOf(lock: Lock): EntityManager {
  const transaction = transactionOf(lock, 'entityManagerOf');
  if (transaction instanceof EntityTransaction) return transaction.manager;
  const { key, provider } = lock;
  throw new LockConfigError(
    `Lock "${key}" has no EntityManager: provider "${provider}" is no TypeOrmRowLockProvider. Use sqlClientOf().`,
    { key, provider },
  );
}
