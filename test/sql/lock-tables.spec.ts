import { spawnSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { lockTablesSql, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startPostgres } from '../servers/sql-server.mjs';
import { LockProcesses, SqlBackend } from '../typeorm/sql-backend.js';
import { readFileSync } from 'node:fs';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { advisoryLockNumber, userLockName } from '../../lib/providers/sql/advisory/advisory-name.js';
import {
  counterNameOf,
  instanceNameOf,
  labelOf,
  entryLabelOf,
  leasesAndInstancesOf,
  keyOfEntry,
  entryNameOf,
  entryNamesOf,
  rowNameOf,
  textOfLabel,
} from '../../lib/providers/sql/table/lock-name.js';
import { createTableSql, DEFAULT_TABLE } from '../../lib/providers/sql/table/lock-schema.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';

const ROOT = join(import.meta.dirname, '../..');
const SHELLS = ['sh', 'bash', 'dash', 'zsh'].filter((shell) => spawnSync(shell, ['-c', 'true']).status === 0);
const POSTGRES = lockTablesSql('postgres').map((statement) => `${statement};\n`);

describe('the command that writes the lock tables', () => {
  let library: CompiledLibrary;
  let command: string;
  let folder: string;

  beforeAll(async () => {
    library = await compileLibrary();
    await cp(join(ROOT, 'bin'), join(library.folder, 'bin'), { recursive: true });
    await mkdir(join(library.folder, 'dist/esm'), { recursive: true });
    await writeFile(join(library.folder, 'dist/esm/cli.js'), `export * from '../../cli/main.js';`);
    command = `"${process.execPath}" "${join(library.folder, 'bin/nestjs-distributed-lock.mjs')}"`;
  }, 60_000);
  afterAll(() => library.remove());
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'lock-migration-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  /** Runs a command line as a reader would type it. */
  function type(line: string, shell = 'sh') {
    const text = line.replace('npx nestjs-distributed-lock', command);
    const { status, stdout, stderr } = spawnSync(shell, ['-c', text], { cwd: folder, encoding: 'utf8' });
    return { status, stdout, stderr };
  }

  /**
   * Returns the command lines in the docs that write a file, each with the file that the migration tool would create.
   */
  async function linesOfPages(): Promise<{ line: string; file: string; database: 'mysql' | 'postgres' }[]> {
    const pages = ['docs/providers/sql.md', 'docs/providers/sql-orms.md'];
    const texts = await Promise.all(pages.map((page) => readFile(join(ROOT, page), 'utf8')));
    return texts.flatMap((text) =>
      Array.from(
        text.matchAll(/^npx nestjs-distributed-lock sql --database (\w+) --out "?([^"\n]+)"?$/gm),
        (match) => ({
          line: match[0],
          database: match[1] as 'mysql' | 'postgres',
          file: match[2]!.replace('*', '0007'),
        }),
      ),
    );
  }

  describe.each(SHELLS)('under %s', (shell) => {
    it("each line in the docs replaces the migration tool's file and creates no other", async () => {
      const lines = await linesOfPages();
      expect(lines).toHaveLength(4);
      for (const { line, file, database } of lines) {
        await mkdir(join(folder, file, '..'), { recursive: true });
        await writeFile(join(folder, file), '-- empty\nDROP TABLE distributed_lock;');
        expect(type(line, shell)).toEqual({ status: 0, stdout: `Wrote ${file}.\n`, stderr: '' });
        const statements = lockTablesSql(database).map((statement) => `${statement};\n`);
        expect(await readFile(join(folder, file), 'utf8')).toBe(statements.join(''));
      }
      const files = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.sql'));
      expect(files.sort()).toEqual([...new Set(lines.map(({ file }) => file))].sort());
    });
  });

  it('writes what locks on Postgres need', async () => {
    const server = await startPostgres();
    expect(type('npx nestjs-distributed-lock sql --database postgres --table own --out own.sql').status).toBe(0);
    const admin = new pg.Client(server.url);
    await admin.connect();
    await admin.query(await readFile(join(folder, 'own.sql'), 'utf8'));
    await admin.end();
    const locks = new LockManager({
      providers: { sql: new SqlVersionLockProvider({ url: server.url, table: 'own' }) },
    });
    await locks.start();
    expect(await (await locks.acquire('a')).release()).toBe('released');
    await locks.stop();
    await server.stop();
  }, 60_000);

  it('prints the same SQL without --out', () => {
    expect(type('npx nestjs-distributed-lock sql --database postgres').stdout).toBe(POSTGRES.join(''));
  });

  it('finds a file by an absolute path and by several parts of its name', async () => {
    await writeFile(join(folder, '0007_add_locks (a).sql'), '');
    expect(type(`npx nestjs-distributed-lock sql --database postgres --out "${folder}/0*locks (*).sql"`).status).toBe(
      0,
    );
    expect(await readFile(join(folder, '0007_add_locks (a).sql'), 'utf8')).toBe(POSTGRES.join(''));
  });

  it('writes nothing if no file or several files match', async () => {
    const line = 'npx nestjs-distributed-lock sql --database postgres --out "drizzle/*_locks.sql"';
    const none = type(line);
    expect(none).toMatchObject({ status: 2, stdout: '' });
    expect(none.stderr).toMatch(
      /^error: No file matches drizzle\/\*_locks\.sql\. Create an empty migration with your migration tool/,
    );
    expect(await readdir(folder)).toEqual([]);

    await mkdir(join(folder, 'drizzle'));
    for (const name of ['0001_locks.sql', '0002_locks.sql', '0003xlocks.sql'])
      await writeFile(join(folder, 'drizzle', name), 'old');
    const several = type(line);
    expect(several).toMatchObject({ status: 2, stdout: '' });
    expect(several.stderr).toMatch(/several files: drizzle\/0001_locks\.sql, drizzle\/0002_locks\.sql\. Pass one/);
    expect(await readFile(join(folder, 'drizzle/0001_locks.sql'), 'utf8')).toBe('old');
  });

  it('creates the folder of the file', async () => {
    const file = 'migrations/V2/locks.sql';
    const made = type(`npx nestjs-distributed-lock sql --database postgres --out ${file}`);
    expect(made).toEqual({ status: 0, stdout: `Wrote ${file}.\n`, stderr: '' });
    expect(await readFile(join(folder, file), 'utf8')).toBe(POSTGRES.join(''));
  });

  it('writes nothing for a pattern in a missing folder, or if another option is invalid', async () => {
    const missing = type('npx nestjs-distributed-lock sql --database postgres --out "missing/*_locks.sql"');
    expect(missing.status).toBe(2);
    expect(missing.stderr).toContain('missing/*_locks.sql');
    expect(type('npx nestjs-distributed-lock sql --database oracle --out locks.sql').status).toBe(2);
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('lockTablesSql()', () => {
  const processes = new LockProcesses();
  const backends = { mariadb: SqlBackend.forTests('mariadb'), postgres: SqlBackend.forTests('postgres') };

  it.each([
    ['mysql', 'mariadb'],
    ['postgres', 'postgres'],
  ] as const)('creates what a provider for %s needs without synchronize', async (database, type) => {
    const { admin, server } = backends[type];
    for (const statement of lockTablesSql(database, { table: 'own' })) await admin.query(statement);
    const locks = await processes.start(new SqlVersionLockProvider({ url: server.url, table: 'own' }));
    expect(await (await locks.acquire('a')).release()).toBe('released');
  });

  it('a table that lacks a column fails the boot with an error that names the column', async () => {
    const { admin, server } = backends.postgres;
    await admin.query('CREATE TABLE old (name varchar(255) PRIMARY KEY, token bigint, holder text, expires bigint)');
    const provider = new SqlVersionLockProvider({ url: server.url, table: 'old', synchronize: true });
    const refused = await processes.start(provider).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(LockConfigError);
    expect(String(refused)).toMatch(/label/);
  });

  it.each([
    ['oracle', {}, /mysql \(also for MariaDB\) or postgres/],
    [undefined, {}, /mysql/],
    ['postgres', { table: 'a; DROP TABLE b' }, /letters, digits/],
    ['sqlite', {}, /MariaDB\) or postgres/],
  ])('rejects %p with %j', (database, options, message) => {
    expect(() => lockTablesSql(database as 'mysql', options)).toThrow(LockConfigError);
    expect(() => lockTablesSql(database as 'mysql', options)).toThrow(message);
  });
});

// Golden: two versions of this package in one fleet must lock the same rows, always.
describe('row names', () => {
  it.each([
    ['order:42', 'shop:order:42'],
    ['Order:42', 'shop:Order:42'],
    ['a b', 'shop:a_b#h4fMnf0CFrqHZE2QKepVI-VfEDmrXap6hhhmU2qKI_s'],
    ['x'.repeat(121), `shop:${'x'.repeat(40)}#KW9uPH1FFOsk0oA0SDKK1Ju6L8675vo-a8kFzYjob-E`],
  ])('%s', (key, name) => {
    expect(rowNameOf('shop', key)).toBe(name);
  });

  it('row names are short ASCII, and differ for keys that differ by half a character', () => {
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

  it("row names of leases map back to their keys, with an ASCII label if the name doesn't contain the key", () => {
    const shown = ['order:42', 'x'.repeat(120)];
    const hidden = ['a b', 'é\u0000\ud800🔑"\\', 'x'.repeat(121)];
    for (const key of [...shown, ...hidden]) {
      const label = entryLabelOf(key);
      expect(label === null).toBe(shown.includes(key));
      expect(label ?? '').toMatch(/^[\x20-\x7e]*$/);
      expect(keyOfEntry('shop', 'lease', { name: entryNameOf('shop', 'lease', key), label })).toBe(key);
    }
    expect(entryLabelOf('é b')).toBe('"\\u00e9 b"');
    expect(textOfLabel(labelOf('host:1'))).toBe('host:1');
    expect(instanceNameOf('shop', '0123456789ab')).toBe('shop#instance:0123456789ab');
  });

  it.each(['run', 'failover'] as const)(
    'row names of records map back to the record names, and are separate from leases: %s',
    (kind) => {
      expect(entryNameOf('shop', kind, 'nightly')).toBe(`shop#${kind}:nightly`);
      const [first, last] = entryNamesOf('shop', kind);
      const [firstLease, lastLease] = leasesAndInstancesOf('shop');
      for (const name of ['nightly', 'x'.repeat(120), 'a b', '\ud800', 'x'.repeat(121), '', '~']) {
        const row = entryNameOf('shop', kind, name);
        expect(keyOfEntry('shop', kind, { name: row, label: entryLabelOf(name) })).toBe(name);
        expect([row, first < row && row < last, row < firstLease || row > lastLease]).toEqual([row, true, true]);
      }
    },
  );

  it('there are sixteen counter names per namespace, which never collide with key names', () => {
    const counters = new Set(Array.from({ length: 500 }, (_, index) => counterNameOf('shop', `key:${index}`)));
    expect(counters.size).toBe(16);
    expect(counterNameOf('shop', 'order:42')).toBe('shop#fence:13');
    for (const name of counters) expect(name.startsWith('shop#fence:')).toBe(true);
  });
});

// Golden as well, computed with Python: a version that computes another name doesn't see the lock.
describe('names of advisory locks', () => {
  it.each([
    ['order:42', 'app:shop:order:42#shcgd24bvcdyybofasdrae5ewuoxcmgu', '-8963107257265846750'],
    ['Order:42', 'app:shop:order:42#u3pqhhw6ssxj4ryw6gd5aomeknpx7iqh', '-8814901557360181231'],
    ['', 'app:shop:#7m4aln6sw46fhyxy4mohbawvb2zwiuxi', '7010832189690237774'],
  ])('"%s"', (key, name, number) => {
    expect(userLockName('App', 'shop', key)).toBe(name);
    expect(advisoryLockNumber('shop', key)).toBe(number);
  });

  it('names of MySQL locks are at most 64 harmless lower-case characters, and all differ', () => {
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

  it('names of MySQL locks are the same however the database name is spelled', () => {
    expect(userLockName('Shop', 'n', 'k')).toBe(userLockName('shop', 'n', 'k'));
  });
});

/** Returns the statements in the SQL blocks of a page in docs/providers. */
function statementsIn(page: string): string[] {
  const text = readFileSync(join(import.meta.dirname, '../../docs/providers', page), 'utf8');
  return [...text.matchAll(/^```sql\n(.*?)^```/gms)].flatMap(([, block]) => block!.split('\n'));
}

describe('the lock table', () => {
  it('is printed in the docs exactly as it is created', () => {
    const families = ['mysql', 'postgres'] as const;
    expect(statementsIn('sql.md').filter((line) => line.startsWith('CREATE'))).toEqual(
      families.map((family) => `${createTableSql(family, DEFAULT_TABLE)};`),
    );
  });

  // Golden: two versions of this package in one fleet must use the same rows, always.
  it('has separate rows for leases and row locks', () => {
    expect(entryNameOf('shop', 'lease', 'order:42')).toBe('shop#lease:order:42');
    expect(entryNameOf('shop', 'lease', 'a b')).toBe('shop#lease:a_b#h4fMnf0CFrqHZE2QKepVI-VfEDmrXap6hhhmU2qKI_s');
    expect(rowNameOf('shop', 'order:42')).toBe('shop:order:42');
    expect(entryNameOf('n'.repeat(64), 'lease', 'é'.repeat(400)).length).toBeLessThanOrEqual(255);
  });
});

describe('lease providers reject invalid options', () => {
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
