import type { Duration } from './duration.js';

/** Selects the rows of the lock table to delete. */
export interface PurgeOptions {
  /** Deletes rows that have not been used for this long: 1 s to 24.8 days. */
  readonly unusedFor: Duration;
}
