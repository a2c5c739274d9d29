// Drizzle's types don't compile without skipLibCheck (0.45), so this file is JavaScript. drizzle.d.mts declares its
// types.
import { and, eq, isNull, lte, or } from 'drizzle-orm';
import { bigint, int, mysqlTable } from 'drizzle-orm/mysql-core';
import { drizzle as onMysql } from 'drizzle-orm/mysql2';
import { drizzle as onPostgres } from 'drizzle-orm/node-postgres';
import { integer, pgTable } from 'drizzle-orm/pg-core';

const DATABASES = {
  mariadb: {
    drizzle: onMysql,
    account: mysqlTable('account', { id: int().primaryKey(), balance: int().notNull() }),
  },
  postgres: {
    drizzle: onPostgres,
    account: pgTable('account', { id: integer().primaryKey(), balance: integer().notNull() }),
  },
};

export async function depositByDrizzle(type, client, amount) {
  const { drizzle, account } = DATABASES[type];
  const db = drizzle({ client });
  const [{ balance }] = await db.select().from(account).where(eq(account.id, 1));
  await db
    .update(account)
    .set({ balance: balance + amount })
    .where(eq(account.id, 1));
  return balance;
}

const fenced = mysqlTable('fenced', {
  id: int().primaryKey(),
  balance: int().notNull(),
  fence: bigint({ mode: 'bigint' }),
});

export async function fencedWriteByDrizzle(client, balance, fence) {
  const [{ affectedRows }] = await onMysql({ client })
    .update(fenced)
    .set({ balance, fence })
    .where(and(eq(fenced.id, 1), or(isNull(fenced.fence), lte(fenced.fence, fence))));
  return affectedRows === 1;
}
