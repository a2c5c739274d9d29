import { spawnSync } from 'node:child_process';
import { type EventEmitter, once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, symlink, unlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as mysql2 from 'mysql2';
import * as mysql2Promise from 'mysql2/promise';
import * as pg from 'pg';
import { DataSource } from 'typeorm';
import { LockConfigError } from '../../lib/api/errors.js';
import {
  entityManagerOf,
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { LockProcesses } from './sql-backend.js';

const ROOT = join(import.meta.dirname, '../..');
const PROVIDERS = [TypeOrmVersionLockProvider, TypeOrmRowLockProvider, TypeOrmAdvisoryLockProvider] as const;
const FAMILIES = [
  { type: 'mysql', name: 'mysql2', start: () => startMySqlOrMariaDb() },
  { type: 'postgres', name: 'pg', start: () => startPostgres() },
] as const;
type Family = (typeof FAMILIES)[number];

const require = createRequire(import.meta.url);
const { createConnection, createPool, createPoolCluster } = mysql2;
const { Client, Pool } = pg.default;
const LENT =
  /^The DataSource "driver" has no (\w+), which locks need .* Pass the whole module \(driver: require\('(\w+)'\)\), or/;

const WORKING = {
  mysql: {
    'as required': require('mysql2') as unknown,
    'as an import namespace': mysql2,
    'copied by a bundler': { ...mysql2 },
    'with only the functions that TypeORM knows': { createConnection, createPool, createPoolCluster },
  },
  postgres: {
    'as required': require('pg') as unknown,
    'as an import namespace': pg,
    'with only the classes that are used': { Client, Pool },
  },
} as const;

/** Drivers that TypeORM itself can connect with, with the words that name what is missing. */
const REFUSED = {
  mysql: { 'without createConnection': [{ createPool, createPoolCluster }, ['createConnection', 'mysql2']] },
  postgres: { 'without Client': [{ Pool }, ['Client', 'pg']] },
} as const;

describe.each(FAMILIES)('the driver of a DataSource on $name', ({ type, name, start }: Family) => {
  const processes = new LockProcesses();
  const sources: DataSource[] = [];
  let server: SqlServer;
  let url: string;
  beforeAll(async () => {
    server = await start();
    url = server.url.replace(/^mariadb:/, 'mysql:');
  }, 60_000);
  afterEach(async () => {
    await Promise.all(sources.splice(0).map((source) => source.destroy()));
  });
  afterAll(() => server.stop());

  /** Creates a DataSource and checks that TypeORM itself works with it. */
  async function sourceWith(driver: unknown): Promise<DataSource> {
    const source = await new DataSource({ type, url, driver }).initialize();
    sources.push(source);
    expect(await source.query('SELECT 1 AS n')).toHaveLength(1);
    return source;
  }

  it.each(Object.entries(WORKING[type]))('%s: the locks of each provider work', async (_, driver) => {
    const dataSource = await sourceWith(driver);
    for (const Provider of PROVIDERS) {
      const [locks, others] = [
        await processes.start(new Provider({ dataSource, synchronize: true })),
        await processes.start(new Provider({ dataSource, synchronize: true })),
      ];
      const lock = await locks.acquire('a');
      expect(await others.tryAcquire('a')).toBeNull();
      if (Provider === TypeOrmRowLockProvider) {
        expect(await entityManagerOf(lock).query('SELECT 1 AS n')).toHaveLength(1);
      }
      expect(await lock.release()).toBe('released');
      await (await others.acquire('a')).release();
    }
  });

  it.each(Object.entries(REFUSED[type]))(
    '%s: fails the start, and names what is missing',
    async (_, [driver, words]) => {
      const dataSource = await sourceWith(driver);
      for (const Provider of PROVIDERS) {
        const started = processes.start(new Provider({ dataSource, synchronize: true }));
        await expect(started).rejects.toBeInstanceOf(LockConfigError);
        const { message } = (await started.catch((error: unknown) => error)) as Error;
        expect(LENT.exec(message)?.slice(1)).toEqual(words);
      }
    },
  );

  if (type === 'mysql')
    it.each(['where it connects', 'where no server is'])('rejects the driver of mysql2/promise, %s', async (where) => {
      const unhandled: unknown[] = [];
      const note = (error: unknown) => unhandled.push(error);
      process.on('unhandledRejection', note);
      let opening: Promise<mysql2Promise.Connection | undefined> | undefined;
      const driver = {
        ...mysql2Promise,
        createConnection: (options: mysql2Promise.ConnectionOptions) => {
          const connection = mysql2Promise.createConnection(options);
          opening = connection.catch(() => undefined);
          return connection.then((opened) => opened);
        },
      };
      const address = where === 'where it connects' ? url : 'mysql://127.0.0.1:1/test';
      const started = processes.start(
        new TypeOrmRowLockProvider({ dataSource: new DataSource({ type, url: address, driver }) }),
      );
      await expect(started).rejects.toThrow(/need the mysql2 driver, but .* uses another one/);
      const opened = await opening;
      // The connection must not stay open on the server.
      if (opened)
        await once((opened as unknown as { connection: { stream: EventEmitter } }).connection.stream, 'close');
      await new Promise(setImmediate);
      process.off('unhandledRejection', note);
      expect(unhandled).toEqual([]);
      expect(opened !== undefined).toBe(where === 'where it connects');
    });

  describe("a driver that the library can't load", () => {
    let library: CompiledLibrary;
    let app: string;
    beforeAll(async () => {
      library = await compileLibrary();
      await unlink(join(library.folder, 'node_modules'));
      await linkPackages(join(library.folder, 'node_modules'), ['mysql2', 'pg']);
      app = await mkdtemp(join(tmpdir(), 'lock-app-'));
      await linkPackages(join(app, 'node_modules'), []);
    }, 60_000);
    afterAll(async () => {
      await rm(app, { recursive: true });
      await library.remove();
    });

    /** Runs a program in which two copies of TypeORM each see their own packages, and returns what it prints. */
    async function run(program: string): Promise<string> {
      const path = join(app, 'program.mjs');
      await writeFile(path, program.replaceAll('LIBRARY', library.folder).replaceAll('URL', url));
      const nodeArguments = ['--preserve-symlinks', '--preserve-symlinks-main', path];
      // TypeORM also looks for packages in the working directory.
      const { stdout, stderr } = spawnSync(process.execPath, nodeArguments, { cwd: library.folder, encoding: 'utf8' });
      expect(stderr).toBe('');
      return stdout.trim();
    }

    it("locks connect with the driver that the application's copy of TypeORM has loaded", async () => {
      const printed = await run(`
        import { DataSource } from 'typeorm';
        import { DataSource as Other } from 'LIBRARY/node_modules/typeorm/index.mjs';
        import { LockManager } from 'LIBRARY/core/lock-manager.js';
        import * as providers from 'LIBRARY/providers/typeorm/index.js';
        const options = { type: '${type}', url: 'URL' };
        try { new Other(options); } catch (error) { console.log(error.name); }
        for (const name of ['TypeOrmVersionLockProvider', 'TypeOrmRowLockProvider', 'TypeOrmAdvisoryLockProvider']) {
          const provider = new providers[name]({ dataSource: new DataSource(options), synchronize: true });
          const locks = new LockManager({ providers: { sql: provider } });
          await locks.start();
          console.log(await (await locks.acquire('a')).release());
          await locks.stop();
        }`);
      expect(printed.split('\n')).toEqual(['DriverPackageNotInstalledError', 'released', 'released', 'released']);
    });

    const START = `
      import { LockManager } from 'LIBRARY/core/lock-manager.js';
      import { SqlRowLockProvider } from 'LIBRARY/providers/sql/index.js';
      const locks = new LockManager({ providers: { sql: new SqlRowLockProvider({ url: 'URL' }) } });
      await locks.start().catch((error) => console.log(error.name + ': ' + error.message));`;

    it('a provider with a plain driver names the missing package', async () => {
      expect(await run(START)).toMatch(
        new RegExp(`^LockConfigError: .*driver "${name}": Cannot find package '${name}' .* npm install ${name}\\.$`),
      );
    });

    it('an installed driver that fails to load reports the reason', async () => {
      const folder = join(library.folder, 'node_modules', name);
      await mkdir(folder);
      await writeFile(join(folder, 'index.js'), `throw new Error('libcrypto.so.1.1 is missing');`);
      const message = await run(START);
      await rm(folder, { recursive: true });
      expect(message).toMatch(new RegExp(`^LockConfigError: .*driver "${name}": libcrypto.so.1.1 is missing\\. `));
    });
  });
});

/** Links the project's packages into a folder, except these. */
async function linkPackages(folder: string, except: readonly string[]): Promise<void> {
  await mkdir(folder);
  const packages = await readdir(join(ROOT, 'node_modules'));
  const linked = packages.filter((name) => !name.startsWith('.') && !except.includes(name));
  await Promise.all(linked.map((name) => symlink(join(ROOT, 'node_modules', name), join(folder, name))));
}
