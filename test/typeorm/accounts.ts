import { type DataSource, EntitySchema } from 'typeorm';
import { LockProcesses, SqlBackend, type SqlType } from './sql-backend.js';

export interface Account {
  id: number;
  balance: number;
}
/** The accounts table as an application's entity. */
export const Account = new EntitySchema<Account>({
  name: 'account',
  columns: { id: { type: Number, primary: true }, balance: { type: Number } },
});

/**
 * A database with two accounts with a balance of 0, shared by the tests of a `describe`. The processes of a test end
 * with it.
 */
export class AccountsRig {
  readonly processes = new LockProcesses();
  backend!: SqlBackend;
  /** The application's own connections. */
  source!: DataSource;

  /**
   * @param setUp Statements to run before all tests.
   * @param cleanUp Statements to run after each test.
   */
  constructor(type: SqlType, setUp: readonly string[] = [], cleanUp: readonly string[] = []) {
    beforeAll(async () => {
      this.backend = await SqlBackend.start(type);
      this.source = await this.backend.source().initialize();
      await this.#run([
        'CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)',
        'INSERT INTO account (id, balance) VALUES (1, 0), (2, 0)',
        ...setUp,
      ]);
    }, 60_000);
    afterEach(async () => {
      await this.#run([...cleanUp, 'UPDATE account SET balance = 0']);
    });
    afterAll(async () => {
      await this.source.destroy();
      await this.backend.stop();
    });
  }

  async #run(statements: readonly string[]): Promise<void> {
    for (const sql of statements) await this.source.query(sql);
  }
}

/** Returns the error of `work`, or undefined if it succeeds. */
export function errorOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => undefined,
    (error: unknown) => error,
  );
}
