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
import { SqlBackend, type SqlType } from '../typeorm/sql-backend.js';

const ROOT = join(import.meta.dirname, '../..');
const SHELLS = ['sh', 'bash', 'dash', 'zsh'].filter((shell) => spawnSync(shell, ['-c', 'true']).status === 0);
const POSTGRES = lockTablesSql('postgres').map((statement) => `${statement};\n`);

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

/** Runs a line as a reader types it. */
function type(line: string, shell = 'sh') {
  const text = line.replace('npx nestjs-distributed-lock', command);
  const { status, stdout, stderr } = spawnSync(shell, ['-c', text], { cwd: folder, encoding: 'utf8' });
  return { status, stdout, stderr };
}

/** The lines of the pages that write a file, each with a file that the migration tool has made for it. */
async function linesOfPages(): Promise<{ line: string; file: string; database: 'mysql' | 'postgres' }[]> {
  const pages = ['docs/providers/sql.md', 'docs/providers/sql-orms.md'];
  const texts = await Promise.all(pages.map((page) => readFile(join(ROOT, page), 'utf8')));
  return texts.flatMap((text) =>
    Array.from(text.matchAll(/^npx nestjs-distributed-lock sql --database (\w+) --out "?([^"\n]+)"?$/gm), (match) => ({
      line: match[0],
      database: match[1] as 'mysql' | 'postgres',
      file: match[2]!.replace('*', '0007'),
    })),
  );
}

describe.each(SHELLS)('under %s', (shell) => {
  it('each line of the pages replaces the file of the migration tool, and makes no other', async () => {
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

it('what it writes is what locks on Postgres need', async () => {
  const server = await startPostgres();
  expect(type('npx nestjs-distributed-lock sql --database postgres --table own --out own.sql').status).toBe(0);
  const admin = new pg.Client(server.url);
  await admin.connect();
  await admin.query(await readFile(join(folder, 'own.sql'), 'utf8'));
  await admin.end();
  const locks = new LockManager({ providers: { sql: new SqlVersionLockProvider({ url: server.url, table: 'own' }) } });
  await locks.start();
  expect(await (await locks.acquire('a')).release()).toBe('released');
  await locks.stop();
  await server.stop();
}, 60_000);

it('prints the same without --out', () => {
  expect(type('npx nestjs-distributed-lock sql --database postgres').stdout).toBe(POSTGRES.join(''));
});

it('finds a file by an absolute path, and by several parts of its name', async () => {
  await writeFile(join(folder, '0007_add_locks (a).sql'), '');
  expect(type(`npx nestjs-distributed-lock sql --database postgres --out "${folder}/0*locks (*).sql"`).status).toBe(0);
  expect(await readFile(join(folder, '0007_add_locks (a).sql'), 'utf8')).toBe(POSTGRES.join(''));
});

it('writes nothing if no file or several files have the name', async () => {
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

it('makes the folder of a file', async () => {
  const file = 'migrations/V2/locks.sql';
  const made = type(`npx nestjs-distributed-lock sql --database postgres --out ${file}`);
  expect(made).toEqual({ status: 0, stdout: `Wrote ${file}.\n`, stderr: '' });
  expect(await readFile(join(folder, file), 'utf8')).toBe(POSTGRES.join(''));
});

it('a pattern in a folder that does not exist, and a mistake in another option, write nothing', async () => {
  const missing = type('npx nestjs-distributed-lock sql --database postgres --out "missing/*_locks.sql"');
  expect(missing.status).toBe(2);
  expect(missing.stderr).toContain('missing/*_locks.sql');
  expect(type('npx nestjs-distributed-lock sql --database oracle --out locks.sql').status).toBe(2);
  expect(await readdir(folder)).toEqual([]);
});

describe('lockTablesSql()', () => {
  const backends = new Map<SqlType, SqlBackend>();

  beforeAll(async () => {
    for (const type of ['mariadb', 'postgres'] as const) backends.set(type, await SqlBackend.start(type));
  }, 60_000);

  afterAll(async () => {
    for (const backend of backends.values()) await backend.stop();
  });

  it.each([
    ['mysql', 'mariadb'],
    ['postgres', 'postgres'],
  ] as const)('makes what a provider for %s needs without synchronize', async (database, type) => {
    const { admin, server } = backends.get(type)!;
    for (const statement of lockTablesSql(database, { table: 'own' })) await admin.query(statement);
    const locks = new LockManager({
      providers: { sql: new SqlVersionLockProvider({ url: server.url, table: 'own' }) },
    });
    await locks.start();
    expect(await (await locks.acquire('a')).release()).toBe('released');
    await locks.stop();
  });

  it('a table that lacks a column is refused at the start, and the message names the column', async () => {
    const { admin, server } = backends.get('postgres')!;
    await admin.query('CREATE TABLE old (name varchar(255) PRIMARY KEY, token bigint, holder text, expires bigint)');
    const provider = new SqlVersionLockProvider({ url: server.url, table: 'old', synchronize: true });
    const refused = await new LockManager({ providers: { sql: provider } }).start().catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(LockConfigError);
    expect(String(refused)).toMatch(/label/);
  });

  it.each([
    ['oracle', {}, /mysql \(also for MariaDB\) or postgres/],
    [undefined, {}, /mysql/],
    ['postgres', { table: 'a; DROP TABLE b' }, /letters, digits/],
    ['sqlite', {}, /MariaDB\) or postgres/],
  ])('refuses %p with %j', (database, options, message) => {
    expect(() => lockTablesSql(database as 'mysql', options)).toThrow(LockConfigError);
    expect(() => lockTablesSql(database as 'mysql', options)).toThrow(message);
  });
});
