import { load, managed } from './lock-manager.mjs';
import { SESSIONS_END_WITHIN, SQL_FAULTS } from './sql-faults.mjs';

const LEASE = 800;

/** Version locks on this type of database, with this lease in ms. */
export const versionLocks = (type, lease = LEASE) => ({
  title: `typeorm version, ${type}`,
  recovery: lease + 4_000,
  lifetime: lease,
  sessionsEndWithin: SESSIONS_END_WITHIN,
  fair: false,
  faults: SQL_FAULTS,
  /** docs/providers/sql-version-lock.md: the lease in a row survives all these faults. */
  allows: {},

  async startBackend({ random, start }) {
    const { leases, startSql } = await import('./sql-server.mjs');
    const server = await (start ?? startSql)(type, random);
    const { conditions } = server;
    return { servers: [server], conditions, remainingLocks: () => leases(server), stop: () => server.stop() };
  },

  async connect({ library, ports, account }) {
    const { dataSource } = await import('./sql-server.mjs');
    const { TypeOrmVersionLockProvider } = await load(library, 'providers/typeorm/index.js');
    const provider = new TypeOrmVersionLockProvider({
      dataSource: dataSource(type, ports[0], account),
      synchronize: true,
      commandTimeout: 500,
      maxConnections: 2,
    });
    return managed({ library, provider, options: { lease }, lifetime: lease });
  },
});
