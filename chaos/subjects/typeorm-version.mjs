import { load, managed } from './lock-manager.mjs';
import { SQL_FAULTS } from './sql-faults.mjs';

const LEASE = 800;

/** Version locks in this database. */
export const versionLocks = (type) => ({
  title: `typeorm version, ${type}`,
  recovery: LEASE + 4_000,
  lifetime: LEASE,
  fair: false,
  nemeses: SQL_FAULTS,
  /** docs/providers/typeorm.md: a lease in a row outlives all these faults. */
  allows: {},

  async startBackend() {
    const { leases, startSql } = await import('./sql-backend.mjs');
    const server = await startSql(type);
    return { servers: [server], leftovers: () => leases(server), stop: () => server.stop() };
  },

  async connect({ library, ports }) {
    const { dataSource } = await import('./sql-backend.mjs');
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
