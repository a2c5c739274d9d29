import type { MigrationInterface, QueryRunner } from 'typeorm';
import { FAMILIES } from '../sql/connection/databases.js';
import type { DatabaseFamily } from '../sql/connection/dialect.js';
import { createTableSql, DEFAULT_TABLE, quotedTable, tableName } from '../sql/table/lock-schema.js';
import { databaseOf } from './data-source.js';

/**
 * Creates the lock table. Add it to your DataSource's `migrations`. For a table other than `distributed_lock`, add
 * your own class:
 *
 * ```ts
 * export class AppLocks1700000000000 extends LockTables1700000000000 {
 *   override name = 'AppLocks1700000000000';
 *   override table = 'app.locks';
 * }
 * ```
 *
 * @throws LockConfigError for a database that no lock provider in this package supports, or an invalid name.
 */
export class LockTables1700000000000 implements MigrationInterface {
  name = 'LockTables1700000000000';
  /** `name` or `schema.name`. */
  table: string = DEFAULT_TABLE;

  async up(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(createTableSql(familyFor(this, queryRunner), this.table));
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(`DROP TABLE ${quotedTable(FAMILIES[familyFor(this, queryRunner)], this.table)}`);
  }
}

function familyFor({ name, table }: LockTables1700000000000, queryRunner: QueryRunner): DatabaseFamily {
  tableName().read(table, { name }, 'table');
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- TypeORM 0.3 doesn't know its new name, dataSource
  return databaseOf(name, queryRunner.connection.options.type);
}
