import type { EntityManager } from 'typeorm';
import { LockConfigError } from '../../../api/errors.js';
import type { Lock } from '../../../api/lock.js';

// Lends the transaction of a lock, by holder id. An id is never used twice, also by several applications of one process.
const lenders = new Map<string, () => EntityManager>();

/**
 * The EntityManager of the transaction that holds the lock, for an exclusive lock of one key of a
 * {@link TypeOrmRowLockProvider}. It has the entities and subscribers of the DataSource that the provider was given, once that is initialized.
 *
 * What is written through it is committed by the release of the lock, and rolled back when the task under `withLock` or a
 * decorator fails, when the lock is lost, and when the process dies. Statements run one after the other. If the transaction was
 * not committed, or its outcome is unknown, the call rejects with `LockLostError` (unless `onLost: 'ignore'`: do not combine the two).
 *
 * The transaction is READ COMMITTED. Do not end it yourself, and run nothing in it that commits by itself (DDL and TRUNCATE on MySQL):
 * the lock is lost then: immediately if the server's answer shows it, otherwise at the next heartbeat, and at the latest before the
 * COMMIT. What was written between such an end and its discovery is committed without the lock.
 *
 * One statement, or a stream of rows, that takes longer than the session guard loses the lock. `lock.release()` of a lock taken with
 * `acquire` commits, whatever happened before it.
 *
 * @throws LockLostError when the lock is not held any more.
 * @throws LockConfigError when the lock has no such transaction.
 */
export function entityManagerOf(lock: Lock): EntityManager {
  const { key, provider } = lock;
  if (lock.keys.length > 1 || lock.mode === 'shared') {
    throw new LockConfigError(
      `Lock "${key}" of provider "${provider}" has no transaction to write in: entityManagerOf() is for exclusive locks of one key.`,
      { key, provider },
    );
  }
  lock.assertHeld();
  const lend = lenders.get(lock.holder);
  if (lend) return lend();
  throw new LockConfigError(
    `Lock "${key}" has no transaction to write in: provider "${provider}" is no TypeOrmRowLockProvider.`,
    { key, provider },
  );
}

/** From now on `lend` lends the transaction of this holder. */
export function offerTransaction(holder: string, lend: () => EntityManager): void {
  lenders.set(holder, lend);
}

/** From now on it is not lent any more. */
export function withdrawTransaction(holder: string): void {
  lenders.delete(holder);
}
