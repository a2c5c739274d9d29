import type { OnApplicationShutdown } from '@nestjs/common';
import { Pool } from 'pg';
import { Stock } from '../stock/stock.js';

const TABLE =
  'CREATE TABLE IF NOT EXISTS shop_stock (item varchar(100) PRIMARY KEY, "left" int NOT NULL, fence bigint)';
const READ = 'SELECT "left" FROM shop_stock WHERE item = $1';
const PUT = `
  INSERT INTO shop_stock (item, "left") VALUES ($1, $2)
  ON CONFLICT (item) DO UPDATE SET "left" = EXCLUDED."left"`;
/** `fence` is the largest fencing token of any write so far. */
const FENCED = 'UPDATE shop_stock SET "left" = $2, fence = $3 WHERE item = $1 AND (fence IS NULL OR fence <= $3)';

/** Keeps the stock in a table of Postgres, read and written in two steps. */
export class PostgresStock extends Stock implements OnApplicationShutdown {
  private constructor(private readonly pool: Pool) {
    super();
  }

  /** Creates the table. A real application would use migrations. */
  static async open(connectionString: string): Promise<PostgresStock> {
    const pool = new Pool({ connectionString });
    await pool.query(TABLE);
    return new PostgresStock(pool);
  }

  async read(item: string): Promise<number> {
    const { rows } = await this.pool.query<{ left: number }>(READ, [item]);
    return rows[0]?.left ?? 0;
  }

  async write(item: string, left: number, token: bigint | null): Promise<boolean> {
    const [statement, values] = token === null ? [PUT, [item, left]] : [FENCED, [item, left, token]];
    const { rowCount } = await this.pool.query(statement, values);
    return rowCount === 1;
  }

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }
}
