import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../lib/api/errors.js';
import { advisoryLockNumber, userLockName } from '../../lib/providers/sql/advisory/advisory-name.js';
import {
  counterNameOf,
  instanceNameOf,
  keyOfLease,
  labelOf,
  leaseLabelOf,
  leaseNameOf,
  leasesAndInstancesOf,
  nameOfRecord,
  recordNameOf,
  recordNamesOf,
  rowNameOf,
  textOfLabel,
} from '../../lib/providers/sql/table/lock-name.js';
import { createTableSql, DEFAULT_TABLE } from '../../lib/providers/sql/table/lock-schema.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';

// Golden: two versions of this package in one fleet must lock the same rows, always.
describe('names of rows', () => {
  it.each([
    ['order:42', 'shop:order:42'],
    ['Order:42', 'shop:Order:42'],
    ['a b', 'shop:a_b#h4fMnf0CFrqHZE2QKepVI-VfEDmrXap6hhhmU2qKI_s'],
    ['x'.repeat(121), `shop:${'x'.repeat(40)}#KW9uPH1FFOsk0oA0SDKK1Ju6L8675vo-a8kFzYjob-E`],
  ])('%s', (key, name) => {
    expect(rowNameOf('shop', key)).toBe(name);
  });

  it('are short, of ASCII, and differ for keys that differ by half a character', () => {
    const names = [
      '\ud800',
      '\ud801',
      'é',
      'e\u0301',
      'a#b',
      'a_b',
      `${'x'.repeat(4_000)}a`,
      `${'x'.repeat(4_000)}b`,
    ].map((key) => rowNameOf('n'.repeat(64), key));
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[\x21-\x7e]{1,255}$/);
  });

  it('of leases lead back to their keys, with a label of ASCII where they do not show them', () => {
    const shown = ['order:42', 'x'.repeat(120)];
    const hidden = ['a b', 'é\u0000\ud800🔑"\\', 'x'.repeat(121)];
    for (const key of [...shown, ...hidden]) {
      const label = leaseLabelOf(key);
      expect(label === null).toBe(shown.includes(key));
      expect(label ?? '').toMatch(/^[\x20-\x7e]*$/);
      expect(keyOfLease('shop', leaseNameOf('shop', key), label)).toBe(key);
    }
    expect(leaseLabelOf('é b')).toBe('"\\u00e9 b"');
    expect(textOfLabel(labelOf('host:1'))).toBe('host:1');
    expect(instanceNameOf('shop', '0123456789ab')).toBe('shop#instance:0123456789ab');
  });

  it.each(['run', 'failover'] as const)('of records lead back to their names, apart from leases: %s', (kind) => {
    expect(recordNameOf('shop', kind, 'nightly')).toBe(`shop#${kind}:nightly`);
    const [first, last] = recordNamesOf('shop', kind);
    const [firstLease, lastLease] = leasesAndInstancesOf('shop');
    for (const name of ['nightly', 'x'.repeat(120), 'a b', '\ud800', 'x'.repeat(121), '', '~']) {
      const row = recordNameOf('shop', kind, name);
      expect(nameOfRecord('shop', kind, row, leaseLabelOf(name))).toBe(name);
      expect([row, first < row && row < last, row < firstLease || row > lastLease]).toEqual([row, true, true]);
    }
  });

  it('of counters are sixteen in a namespace, and never those of keys', () => {
    const counters = new Set(Array.from({ length: 500 }, (_, index) => counterNameOf('shop', `key:${index}`)));
    expect(counters.size).toBe(16);
    expect(counterNameOf('shop', 'order:42')).toBe('shop#fence:13');
    for (const name of counters) expect(name.startsWith('shop#fence:')).toBe(true);
  });
});

// Golden as well, computed by Python: a version that computes another name does not see the lock.
describe('names of advisory locks', () => {
  it.each([
    ['order:42', 'app:shop:order:42#shcgd24bvcdyybofasdrae5ewuoxcmgu', '-8963107257265846750'],
    ['Order:42', 'app:shop:order:42#u3pqhhw6ssxj4ryw6gd5aomeknpx7iqh', '-8814901557360181231'],
    ['', 'app:shop:#7m4aln6sw46fhyxy4mohbawvb2zwiuxi', '7010832189690237774'],
  ])('"%s"', (key, name, number) => {
    expect(userLockName('App', 'shop', key)).toBe(name);
    expect(advisoryLockNumber('shop', key)).toBe(number);
  });

  it('of MySQL are at most 64 harmless characters in lower case, and all differ', () => {
    const keys = ['a', 'A', 'a ', ' a', 'é', 'e\u0301', '\ud800', '\ud801', 'x'.repeat(4_000), `${'x'.repeat(4_000)}y`];
    const names = [
      ...keys.map((key) => userLockName('app', 'n'.repeat(64), key)),
      ...['other', ''].map((database) => userLockName(database, 'shop', 'a')),
      userLockName('app', 'shop', 'a'),
    ];
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[a-z0-9_.:@/=+,-]{0,31}#[a-z2-7]{32}$/);
    const numbers = keys.map((key) => advisoryLockNumber('shop', key));
    expect(new Set([...numbers, advisoryLockNumber('sho', 'pa')]).size).toBe(keys.length + 1);
  });

  it('of MySQL are one for a database, however it is spelled', () => {
    expect(userLockName('Shop', 'n', 'k')).toBe(userLockName('shop', 'n', 'k'));
  });
});

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
