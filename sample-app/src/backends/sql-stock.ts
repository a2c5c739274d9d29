import type { OnApplicationShutdown } from '@nestjs/common';
import { Column, type DataSource, Entity, PrimaryColumn } from 'typeorm';
import { Stock } from '../stock/stock.js';

@Entity('shop_stock')
export class StockItem {
  @PrimaryColumn({ type: 'varchar', length: 100 })
  item!: string;

  @Column('int')
  left!: number;

  /** The largest fencing token that has written. */
  @Column('bigint', { nullable: true })
  fence!: string | null;
}

/** Keeps the stock in a table, read and written in two steps. */
export class SqlStock extends Stock implements OnApplicationShutdown {
  constructor(private readonly dataSource: DataSource) {
    super();
  }

  async read(item: string): Promise<number> {
    const found = await this.dataSource.manager.findOneBy(StockItem, { item });
    return found?.left ?? 0;
  }

  async write(item: string, left: number, token: bigint | null): Promise<boolean> {
    if (token === null) {
      await this.dataSource.manager.upsert(StockItem, { item, left }, ['item']);
      return true;
    }
    const fence = String(token);
    const { affected } = await this.dataSource
      .createQueryBuilder()
      .update(StockItem)
      .set({ left, fence })
      .where('item = :item AND (fence IS NULL OR fence <= :fence)', { item, fence })
      .execute();
    return affected === 1;
  }

  async onApplicationShutdown(): Promise<void> {
    await this.dataSource.destroy();
  }
}
