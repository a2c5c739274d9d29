import { type Dialect, firstRow, type Run } from './dialect.js';
import { ensureTable } from './ensure-table.js';

/** The table in which each key that was ever locked has a row. A row says nothing of who holds it. */
export class LockTable {
  constructor(
    private readonly dialect: Dialect,
    /** On the control connection, in autocommit. */
    private readonly run: Run,
  ) {}

  /** @throws LockConfigError when the table is missing and must not be created. */
  prepare(synchronize: boolean): Promise<void> {
    const { dialect, run } = this;
    const { findTable: find, createTable: create } = dialect;
    return ensureTable(run, dialect, { what: 'locks', find, create, synchronize });
  }

  /**
   * Makes the row of a key. In autocommit and before anybody locks it: a lock on a row that does not exist is granted to
   * everybody under READ COMMITTED (measured on MariaDB 10.11), so it must never count. Answers false when somebody's transaction
   * keeps it from being made: it is there already and locked, or stands in a gap that is.
   */
  async createRow(name: string): Promise<boolean> {
    try {
      await this.run(this.dialect.createRow, [name]);
      return true;
    } catch (error) {
      if (this.dialect.classify(error) !== 'busy') throw error;
      return false;
    }
  }

  /** Makes the row of a key unless it is there. */
  async ensureRow(name: string): Promise<void> {
    if (!firstRow(await this.run(this.dialect.findRow, [name]))) await this.createRow(name);
  }

  /**
   * The next fencing token, committed by autocommit of the connection of `run`. In the transaction of the lock it would be
   * rolled back when the holder is killed, and the next holder would get the same.
   */
  async nextToken(counter: string, run = this.run): Promise<bigint> {
    const token = await this.dialect.nextToken(run, counter);
    if (token !== undefined) return token;
    await this.createRow(counter);
    return this.nextToken(counter, run);
  }
}
