import { LockManager } from '../../lib/core/lock-manager.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { type SqlServer, startMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

const KINDS = [SqlVersionLockProvider, SqlRowLockProvider, SqlAdvisoryLockProvider];

describe.each<[string, () => Promise<SqlServer>]>([
  ['Postgres', startPostgres],
  ['MariaDB', startMariaDb],
])('connections to %s that were idle', (_, startServer) => {
  let server: SqlServer;
  let nat: TcpProxy;

  beforeAll(async () => {
    server = await startServer();
    nat = await startTcpProxy(server.port);
  }, 60_000);
  afterAll(async () => {
    await nat.close();
    await server.stop();
  });

  it.each(KINDS)('are replaced for a call with wait: 0 when a NAT has dropped them: %p', async (Provider) => {
    const url = server.url.replace(`:${server.port}`, `:${nat.port}`);
    const provider = new Provider({ url, synchronize: true, commandTimeout: 1_200 });
    const locks = new LockManager({ providers: { sql: provider }, shutdownGrace: 0 });
    await locks.start();
    await locks.withLock('warm', () => undefined);
    nat.drop();
    expect(await locks.withLock('k', () => 'done', { wait: 0 })).toBe('done');
    await locks.stop();
  });
});
