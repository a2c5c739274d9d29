import type { Connected } from '../sql-backend.js';
import type { LeaseTable } from './lease-table.js';
import type { Renewals } from './renewals.js';

/** The database of the leases, connected: a server, or SQLite. */
export interface LeaseDatabase extends Connected {
  readonly leases: LeaseTable;
  readonly renewals: Renewals;
  /** Deletes the rows that nobody has used for this many ms, and resolves to their number. */
  purge(unusedFor: number): Promise<number>;
}
