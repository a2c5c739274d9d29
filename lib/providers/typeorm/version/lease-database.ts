import type { Connected } from '../database.js';
import type { LeaseTable } from './lease-table.js';

/** The database of the leases, connected: a server, or SQLite. */
export interface LeaseDatabase extends Connected {
  readonly leases: LeaseTable;
  /** Deletes the rows that nobody has used for this many ms, and resolves to their number. */
  purge(unusedFor: number): Promise<number>;
}
