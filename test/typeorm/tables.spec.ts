import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../lib/api/errors.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { leaseNameOf, rowNameOf } from '../../lib/providers/sql/table/lock-name.js';
import { createTableSql, DEFAULT_TABLE } from '../../lib/providers/sql/table/lock-schema.js';

/** The statements in the SQL blocks of a page of docs/providers. */
function statementsIn(page: string): string[] {
  const text = readFileSync(join(import.meta.dirname, '../../docs/providers', page), 'utf8');
  return [...text.matchAll(/^```sql\n(.*?)^```/gms)].flatMap(([, block]) => block!.split('\n'));
}

describe('the table of the locks', () => {
  it('is printed in the docs as it is created', () => {
    const families = ['mysql', 'postgres'] as const;
    expect(statementsIn('sql.md').filter((line) => line.startsWith('CREATE'))).toEqual(
      families.map((family) => `${createTableSql(family, DEFAULT_TABLE)};`),
    );
  });

  // Golden: two versions of this package in one fleet must use the same rows, always.
  it('has other rows for leases than for row locks', () => {
    expect(leaseNameOf('shop', 'order:42')).toBe('shop#lease:order:42');
    expect(leaseNameOf('shop', 'a b')).toBe('shop#lease:a_b#h4fMnf0CFrqHZE2QKepVI-VfEDmrXap6hhhmU2qKI_s');
    expect(rowNameOf('shop', 'order:42')).toBe('shop:order:42');
    expect(leaseNameOf('n'.repeat(64), 'é'.repeat(400)).length).toBeLessThanOrEqual(255);
  });
});

describe('leases refuse', () => {
  it.each([
    [{ table: 'a; DROP TABLE b' }],
    [{ table: 'a.b.c' }],
    [{ table: 'a'.repeat(57) }],
    [{ maxConnections: 0 }],
    [{ commandTimeout: 1 }],
    [{ dataSource: new DataSource({ type: 'cockroachdb' } as DataSourceOptions) }],
  ])('%#', (options) => {
    const dataSource = new DataSource({ type: 'postgres' });
    expect(() => new TypeOrmVersionLockProvider({ dataSource, ...options })).toThrow(LockConfigError);
  });
});
