import type { Weakness } from '../dialect.js';
import type { Database } from '../database.js';
import type { LeaseTable } from './lease-table.js';

/** The database of the leases, connected. */
export interface LeaseDatabase {
  readonly leases: LeaseTable;
  /** The server behind it; SQLite has none. */
  readonly server?: Database;
  /** Makes the row of a key, free, unless it exists. What came of it is seen at the next look. */
  createRow(name: string): Promise<unknown>;
  /** Deletes the rows that nobody has used for this many ms, and answers how many. */
  purge(unusedFor: number): Promise<number>;
  /** Whether it was a lock of somebody else that made a statement fail, which then has changed nothing. */
  isBusy(error: unknown): boolean;
  check(): Promise<readonly Weakness[]>;
  close(): Promise<void>;
}
