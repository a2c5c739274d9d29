import type { EntityManager } from 'typeorm';
import { LockConfigError } from '../../../lock/errors.js';
import type { Lock } from '../../../lock/lock.js';

interface LentTransaction {
  readonly manager: EntityManager;
  wasUsed: boolean;
}

// By holder id, which is never used twice.
const lent = new Map<string, LentTransaction>();

/**
 * The EntityManager of the transaction that holds the lock, for an exclusive lock of one key of a
 * {@link TypeOrmRowLockProvider}.
 *
 * What is written through it is committed by the release of the lock, and rolled back when the task under `withLock` or a
 * decorator fails, when the lock is lost, and when the process dies: a write without the lock cannot happen, where each
 * statement is awaited before the next (MySQL commits by itself what was sent beside one that ends in a deadlock). If the commit
 * is not confirmed, the call rejects with `LockLostError` (unless `onLost: 'ignore'`: do not combine the two). The transaction is READ COMMITTED. Do not commit it yourself, and run
 * no statement in it that commits implicitly (DDL on MySQL). One statement that takes longer than the session guard loses the
 * lock. `lock.release()` of a lock taken with `acquire` commits, whatever happened before it.
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
  const transaction = lent.get(lock.holder);
  if (!transaction) {
    throw new LockConfigError(
      `Lock "${key}" has no transaction to write in: provider "${provider}" is no TypeOrmRowLockProvider, or the lock was taken in a transaction of yours.`,
      { key, provider },
    );
  }
  transaction.wasUsed = true;
  return transaction.manager;
}

export function lendTransaction(holder: string, manager: EntityManager): void {
  lent.set(holder, { manager, wasUsed: false });
}

/** Answers whether anybody had asked for it. */
export function takeTransactionBack(holder: string): boolean {
  const transaction = lent.get(holder);
  lent.delete(holder);
  return transaction?.wasUsed ?? false;
}
