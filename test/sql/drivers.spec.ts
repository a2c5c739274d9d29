import { readFile } from 'node:fs/promises';
import { createPool } from 'mysql2';
import pg from 'pg';
import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { itUnless } from '../unless.js';

const databases = ['mysql', 'postgres'] as const;

describe.each([SqlRowLockProvider, SqlVersionLockProvider, SqlAdvisoryLockProvider])('%p', (Provider) => {
  const make = (options: unknown) => () => new Provider(options as never);

  it.each([
    [undefined],
    [null],
    [{}],
    [{ url: 'postgres://h/d', postgres: {} }],
    [{ postgres: {}, mysql: {} }],
    [{ dataSource: {} }],
  ])('needs exactly one server: %j', (options) => {
    expect(make(options)).toThrow(LockConfigError);
    expect(make(options)).toThrow(/exactly one of "url", "postgres" and "mysql"/);
  });

  it.each(['redis://u:secret@h/d', 'postgres', '', 5, 'http://u:secret@h'])(
    'names the schemes of "url", and not the address, which may have a password: %p',
    (url) => {
      expect(make({ url })).toThrow(/must begin with postgres:\/\//);
      expect(make({ url })).not.toThrow(/secret/);
    },
  );

  it('refuses the pools of the application, whose waiters would block it', async () => {
    const [postgres, mysql] = [new pg.Pool(), createPool({})];
    for (const options of [{ postgres }, { mysql }]) expect(make(options)).toThrow(/not a pool or a connection/);
    await postgres.end();
    mysql.end();
  });
});

describe.each(databases)('connections to %s', (type) => {
  let server: SqlServer;
  beforeAll(async () => {
    server = type === 'mysql' ? await startMySqlOrMariaDb() : await startPostgres();
  }, 60_000);
  afterAll(() => server.stop());

  // sl, local address, remote address, state, queues, timer; a timer of kind 2 is that of keep-alive. In hundredths of a second.
  const TIMERS = /^ *\d+: \S+ \S+:([0-9A-F]{4}) 01 \S+ (\d\d):([0-9A-F]{8})/gm;
  const timers = async () => {
    const port = server.port.toString(16).toUpperCase().padStart(4, '0');
    const sockets = (await readFile('/proc/net/tcp', 'utf8')).matchAll(TIMERS);
    return [...sockets].filter(([, remote]) => remote === port).map(([, , kind, left]) => [kind, parseInt(left!, 16)]);
  };

  itUnless(process.platform === 'linux' ? undefined : 'only Linux shows the timers of its sockets')(
    'those that wait for a lock are looked after by the system, since they send nothing',
    async () => {
      const provider = new SqlRowLockProvider({ url: server.url, synchronize: true });
      const locks = new LockManager({ providers: { sql: provider } });
      await locks.start();
      const held = await locks.acquire('a');
      const waiting = locks.acquire('a');
      // Data that is not acknowledged yet has another timer.
      const areKept = (found: unknown[][]) => found.length >= 3 && found.every(([kind]) => kind === '02');
      let found = await timers();
      while (!areKept(found)) found = await timers();
      for (const [, left] of found) expect(left).toBeLessThanOrEqual(1_000);
      await held.release();
      await (await waiting).release();
      await locks.stop();
    },
  );
});
