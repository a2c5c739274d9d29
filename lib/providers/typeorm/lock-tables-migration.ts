import type { MigrationInterface, QueryRunner } from 'typeorm';
import { LockConfigError } from '../../lock/errors.js';
import { createTableSql, type DatabaseFamily, DEFAULT_TABLE, isTableName, quotedTable } from './table-layout.js';

/**
 * Creates the table of the locks: name it among the `migrations` of your DataSource. For another table than `distributed_lock`
 * name a class of your own:
 *
 * ```ts
 * export class AppLocks1700000000000 extends LockTables1700000000000 {
 *   override name = 'AppLocks1700000000000';
 *   override table = 'app.locks';
 * }
 * ```
 *
 * @throws LockConfigError on a database that no lock provider of this package uses, and for a name that is none.
 */
export class LockTables1700000000000 implements MigrationInterface {
  name = 'LockTables1700000000000';
  /** `name` or `schema.name`. */
  table: string = DEFAULT_TABLE;

  async up(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(createTableSql(this.#familyOf(queryRunner), this.table));
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(`DROP TABLE ${quotedTable(this.#familyOf(queryRunner), this.table)}`);
  }

  #familyOf(queryRunner: QueryRunner): DatabaseFamily {
    if (!isTableName(this.table)) {
      throw new LockConfigError(
        `${this.name}: "table" must be a name, or a schema and a name, of letters, digits and "_".`,
      );
    }
    // Its new name, dataSource, is unknown to TypeORM 0.3.
    // eslint-disable-next-line @typescript-eslint/no-deprecated
    const { type } = queryRunner.connection.options;
    switch (type) {
      case 'mysql':
      case 'mariadb':
        return 'mysql';
      case 'postgres':
        return 'postgres';
      case 'better-sqlite3':
      case 'sqljs':
        return 'sqlite';
      default:
        throw new LockConfigError(`${this.name}: there are no locks for databases of type "${type}".`);
    }
  }
}
