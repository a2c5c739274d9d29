import type { EntityManager } from 'typeorm';
import type { TypeOrmSessionLockOptions } from '../database-options.js';

declare module '../../../lock/lock-options.js' {
  interface LockOptions {
    /**
     * Takes the row lock inside this running transaction of yours, and keeps it until you commit or roll back; `release()` ends
     * the local state alone. Only with a `TypeOrmRowLockProvider` on the same database. Waiting asks again every 50 ms or so, so
     * that a busy lock never blocks your connection nor aborts your transaction.
     */
    transaction?: EntityManager | undefined;
  }
}

/** `maxConnections` counts one for each key held or waited for. */
export type TypeOrmRowLockProviderOptions = TypeOrmSessionLockOptions;
