import type { Duration } from '../../../lock/duration.js';
import type { TypeOrmSessionLockOptions } from '../database-options.js';

/** `maxConnections` counts one for each key held or waited for. */
export interface TypeOrmRowLockProviderOptions extends TypeOrmSessionLockOptions {
  /**
   * How long the server may take, in ms, for the COMMIT of what was written through `entityManagerOf(lock)`. Then the outcome is unknown, and
   * the call rejects with `LockLostError`, reason `commit-unknown`. Default 30 s, at least 50 ms: a synchronous standby may lag.
   */
  readonly commitTimeout?: Duration | undefined;
}
