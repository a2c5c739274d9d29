import { LockConfigError } from '../../../api/errors.js';
import type { Lock } from '../../../api/lock.js';
import type { LentTransaction } from './lent-transaction.js';

// By holder id. An id is never used twice, also by several applications of one process.
const lenders = new Map<string, () => LentTransaction>();

/** From now on `lend` lends the transaction of this holder. */
export function offerTransaction(holder: string, lend: () => LentTransaction): void {
  lenders.set(holder, lend);
}

/** From now on it is not lent any more. */
export function withdrawTransaction(holder: string): void {
  lenders.delete(holder);
}

/**
 * The transaction that holds the lock.
 *
 * @param by the function that asks
 * @throws LockLostError when the lock is not held any more
 * @throws LockConfigError when the lock has no such transaction
 */
export function transactionOf(lock: Lock, by: string): LentTransaction {
  const { key, provider } = lock;
  if (lock.keys.length > 1 || lock.mode === 'shared') {
    throw new LockConfigError(
      `Lock "${key}" of provider "${provider}" has no transaction to write in: ${by}() is for exclusive locks of one key.`,
      { key, provider },
    );
  }
  lock.assertHeld();
  const lend = lenders.get(lock.holder);
  if (lend) return lend();
  throw new LockConfigError(
    `Lock "${key}" has no transaction to write in: provider "${provider}" is no provider of row locks. Take the lock from a SqlRowLockProvider or TypeOrmRowLockProvider.`,
    { key, provider },
  );
}
