import { load, managed } from './lock-manager.mjs';
import { SESSIONS_END_WITHIN, SQL_FAULTS } from './sql-faults.mjs';

const LEASE = 800;

/** Version locks of this database. */
export const versionLocks = (type) => ({
  title: `typeorm version, ${type}`,
  recovery: LEASE + 4_000,
  lifetime: LEASE,
  sessionsEndWithin: SESSIONS_END_WITHIN,
  fair: false,
  faults: SQL_FAULTS,
  /** docs/providers/sql-version-lock.md: the lease in a row survives all these faults. */
  allows: {},

  async startBackend({ random }) {
    const { leases, startSql } = await import('./sql-server.mjs');
    const server = await startSql(type, random);
    const { conditions } = server;
    return { servers: [server], conditions, remainingLocks: () => leases(server), stop: () => server.stop() };
  },

  async connect({ library, ports }) {
    const { dataSource } = await import('./sql-server.mjs');
    const { TypeOrmVersionLockProvider } = await load(library, 'providers/typeorm/index.js');
    const provider = new TypeOrmVersionLockProvider({
      dataSource: dataSource(type, ports[0]),
      synchronize: true,
      statementTimeout: 500,
      maxConnections: 2,
    });
    return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
  },
});
