import type { DataSource } from 'typeorm';
import { SqlBackend, type SqlType } from './sql-backend.js';

/** A database with two accounts, without a balance, and the application's own connections to it. */
export async function startWithAccounts(type: SqlType): Promise<{ backend: SqlBackend; source: DataSource }> {
  const backend = await SqlBackend.start(type);
  const source = await backend.source().initialize();
  await source.query('CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)');
  await source.query('INSERT INTO account (id, balance) VALUES (1, 0), (2, 0)');
  return { backend, source };
}
