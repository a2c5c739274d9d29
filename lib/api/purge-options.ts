import type { Duration } from './duration.js';

/** The rows of the lock table to delete. */
export interface PurgeOptions {
  /** How long the rows to delete have not been used: 1 s to 24.8 days. */
  readonly unusedFor: Duration;
}
