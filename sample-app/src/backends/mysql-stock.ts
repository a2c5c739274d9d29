import type { OnApplicationShutdown } from '@nestjs/common';
import { createPool, type Pool, type ResultSetHeader, type RowDataPacket } from 'mysql2/promise';
import { Stock } from '../stock/stock.js';

const TABLE =
  'CREATE TABLE IF NOT EXISTS shop_stock (item varchar(100) PRIMARY KEY, `left` int NOT NULL, fence bigint) ENGINE = InnoDB';
const READ = 'SELECT `left` FROM shop_stock WHERE item = ?';
const PUT = 'INSERT INTO shop_stock (item, `left`) VALUES (?, ?) ON DUPLICATE KEY UPDATE `left` = VALUES(`left`)';
/** `fence` is the largest fencing token of any write so far. */
const FENCED = 'UPDATE shop_stock SET `left` = ?, fence = ? WHERE item = ? AND (fence IS NULL OR fence <= ?)';

/** Keeps the stock in a table of MySQL or MariaDB, read and written in two steps. */
export class MySqlStock extends Stock implements OnApplicationShutdown {
  private constructor(private readonly pool: Pool) {
    super();
  }

  /** Creates the table. A real application would use migrations. */
  static async open(uri: string): Promise<MySqlStock> {
    const pool = createPool(uri);
    await pool.query(TABLE);
    return new MySqlStock(pool);
  }

  async read(item: string): Promise<number> {
    const [rows] = await this.pool.query<RowDataPacket[]>(READ, [item]);
    return Number(rows[0]?.['left'] ?? 0);
  }

  async write(item: string, left: number, token: bigint | null): Promise<boolean> {
    if (token === null) {
      await this.pool.query(PUT, [item, left]);
      return true;
    }
    const [{ affectedRows }] = await this.pool.query<ResultSetHeader>(FENCED, [left, token, item, token]);
    return affectedRows === 1;
  }

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }
}
