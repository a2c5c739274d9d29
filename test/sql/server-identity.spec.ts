import pg from 'pg';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { describeUnless } from '../unless.js';
import { LockProcesses } from '../typeorm/sql-backend.js';

const kinds = [SqlVersionLockProvider, SqlRowLockProvider, SqlAdvisoryLockProvider];
// Every account may call the function that identifies a server, unless an operator revokes that.
const accounts = ['postgres', 'plain'];

/** No test waits until this timeout. Load alone can make a server slow. */
const commandTimeout = '1m';
const TEST_TIMEOUT = 180_000;

const ONE_ADDRESS = process.platform === 'linux' ? undefined : 'only Linux has more loopback addresses than one';

const processes = new LockProcesses();

/** A configuration whose connections go to these addresses in turn. */
const inTurn = (
  account: { user: string; database: string },
  places: readonly (readonly [host: string, port: number])[],
) => {
  let connections = 0;
  const next = () => places[connections % places.length]!;
  return {
    ...account,
    get host() {
      return next()[0];
    },
    get port() {
      const [, port] = next();
      connections += 1;
      return port;
    },
  };
};

describeUnless(ONE_ADDRESS)('a Postgres is identified by itself, not by the address of a connection', () => {
  let server: SqlServer;
  let other: SqlServer;

  beforeAll(async () => {
    server = await startPostgres({ addresses: ['127.0.0.1', '127.0.0.2'] });
    // A copy of the same data directory, like all servers of a test run.
    other = await startPostgres();
    for (const { url } of [server, other]) {
      const admin = new pg.Client(url);
      await admin.connect();
      await admin.query('CREATE ROLE plain LOGIN; GRANT ALL ON SCHEMA public TO plain');
      await admin.query('REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC');
      await admin.query(`CREATE DATABASE plain OWNER plain`);
      await admin.end();
    }
  }, TEST_TIMEOUT);
  afterAll(() => Promise.all([server.stop(), other.stop()]));

  describe.each(kinds)('%p', (Provider) => {
    it.each(accounts)('counts as one server with two addresses, for %s', async (user) => {
      const postgres = inTurn({ user, database: user }, [
        ['127.0.0.1', server.port],
        ['127.0.0.2', server.port],
      ]);
      const provider = new Provider({ postgres, synchronize: true, commandTimeout });
      const locks = await processes.start(provider);
      const failures: unknown[] = [];
      locks.events.on('unavailable', (event) => failures.push(event));
      const keys = Array.from({ length: 12 }, (_, index) => `k${index % 4}`);
      await Promise.all(keys.map((key) => locks.withLock(key, () => key)));
      expect(failures).toEqual([]);
    });

    it.each(accounts)(
      'counts as another server if it was created from the same data directory, for %s',
      async (user) => {
        const postgres = inTurn({ user, database: user }, [
          ['127.0.0.1', server.port],
          ['127.0.0.1', other.port],
        ]);
        const start = processes.start(new Provider({ postgres, synchronize: true, commandTimeout }));
        await expect(start).rejects.toBeInstanceOf(LockUnavailableError);
        await expect(start).rejects.toThrow(/two connections reached different servers/);
      },
    );
  });
});

describeUnless(ONE_ADDRESS)('a MySQL or MariaDB is identified by itself', () => {
  it(
    'a server on the same machine and port, from a copy of the same data directory, is another server',
    async () => {
      const first = await startMySqlOrMariaDb();
      const second = await startMySqlOrMariaDb({ place: { address: '127.0.0.2', port: first.port } });
      try {
        const mysql = inTurn({ user: 'root', database: 'test' }, [
          ['127.0.0.1', first.port],
          ['127.0.0.2', second.port],
        ]);
        const start = processes.start(new SqlAdvisoryLockProvider({ mysql, commandTimeout }));
        await expect(start).rejects.toThrow(/two connections reached different servers/);
      } finally {
        await Promise.all([first.stop(), second.stop()]);
      }
    },
    TEST_TIMEOUT,
  );
});
