import { load, managed } from './lock-manager.mjs';
import { SQL_FAULTS } from './sql-faults.mjs';

const GUARD = 1_000;

/** Row locks in this database. */
export const rowLocks = (type) => sessionLocks(`typeorm row, ${type}`, type, 'TypeOrmRowLockProvider', lockedRows);

/** `GET_LOCK`, or advisory locks of Postgres. */
export const advisoryLocks = (type) =>
  sessionLocks(
    `typeorm advisory, ${type}`,
    type,
    'TypeOrmAdvisoryLockProvider',
    type === 'postgres' ? advisoryKeys : () => [],
  );

/** Locks that live as long as their connection. */
const sessionLocks = (title, type, provider, leftovers) => ({
  title,
  /** The session guard frees the lock of a holder that is frozen or cut off. MariaDB counts it in whole seconds. */
  recovery: 2 * GUARD + 4_000,
  lifetime: GUARD,
  fair: false,
  nemeses: SQL_FAULTS,
  /**
   * The server frees the lock when the connection ends, and the holder notices a moment later. Writes in the transaction of
   * the lock are rolled back; other writes are refused by their token.
   */
  allows: Object.fromEntries(
    ['KILL CONNECTION', 'server restarted', 'wire reset', 'connections refused', 'requests lost', 'replies lost'].map(
      (name) => [name, ['overlap']],
    ),
  ),

  /** A moment: the sockets end together, and the holder has to be given the processor. */
  toldWithin: 500,

  async startBackend() {
    const { startSql } = await import('./sql-backend.mjs');
    const server = await startSql(type);
    return { servers: [server], leftovers: () => leftovers(server), stop: () => server.stop() };
  },

  async connect({ library, ports }) {
    const { dataSource } = await import('./sql-backend.mjs');
    const providers = await load(library, 'providers/typeorm/index.js');
    const locks = new providers[provider]({
      dataSource: dataSource(type, ports[0]),
      synchronize: true,
      fencing: true,
      sessionGuard: GUARD,
      statementTimeout: 500,
      // One fewer than there are keys: the pool is exhausted all the time.
      maxConnections: 2,
    });
    return managed({ library, provider: locks, lifetime: GUARD });
  },
});

async function lockedRows({ ask }) {
  return ask((admin) =>
    admin.transaction(async (manager) => {
      const all = await manager.query(`SELECT name FROM distributed_lock WHERE name LIKE 'lock:%'`);
      const free = await manager.query(
        `SELECT name FROM distributed_lock WHERE name LIKE 'lock:%' FOR UPDATE SKIP LOCKED`,
      );
      // After a soak there are tens of thousands.
      const isFree = new Set(free.map(({ name }) => String(name)));
      return all.map(({ name }) => String(name)).filter((name) => !isFree.has(name));
    }),
  );
}

async function advisoryKeys({ ask }) {
  const rows = await ask((admin) => admin.query(`SELECT objid FROM pg_locks WHERE locktype = 'advisory'`));
  return rows.map(({ objid }) => `advisory lock ${objid}`);
}
