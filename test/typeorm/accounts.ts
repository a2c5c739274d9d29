import { type DataSource, EntitySchema } from 'typeorm';
import { SqlBackend, type SqlType } from './sql-backend.js';

export interface Account {
  id: number;
  balance: number;
}
/** The table of the accounts as an entity of the application. */
export const Account = new EntitySchema<Account>({
  name: 'account',
  columns: { id: { type: Number, primary: true }, balance: { type: Number } },
});

/** A database with two accounts, without a balance, and the application's own connections to it. */
export async function startWithAccounts(type: SqlType): Promise<{ backend: SqlBackend; source: DataSource }> {
  const backend = await SqlBackend.start(type);
  const source = await backend.source().initialize();
  await source.query('CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)');
  await source.query('INSERT INTO account (id, balance) VALUES (1, 0), (2, 0)');
  return { backend, source };
}
