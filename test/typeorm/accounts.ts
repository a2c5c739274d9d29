import { type DataSource, EntitySchema } from 'typeorm';
import { LockProcesses, SqlBackend, type SqlType } from './sql-backend.js';

export interface Account {
  id: number;
  balance: number;
}
/** The table of the accounts as an entity of the application. */
export const Account = new EntitySchema<Account>({
  name: 'account',
  columns: { id: { type: Number, primary: true }, balance: { type: Number } },
});

/** A database with two accounts, without a balance, for all cases of a `describe`. The processes of a case end with it. */
export class AccountsRig {
  readonly processes = new LockProcesses();
  backend!: SqlBackend;
  /** The application's own connections. */
  source!: DataSource;

  /**
   * @param setUp statements before all cases
   * @param cleanUp statements after each case
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

/** The error of `work`; undefined if it succeeds. */
export function errorOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => undefined,
    (error: unknown) => error,
  );
}
