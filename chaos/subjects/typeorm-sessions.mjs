import { load, managed } from './lock-manager.mjs';
import { SESSIONS_END_WITHIN, SQL_FAULTS } from './sql-faults.mjs';

const GUARD = 1_000;

/** Row locks on this type of database. */
export const rowLocks = (type) => sessionLocks(`typeorm row, ${type}`, type, 'TypeOrmRowLockProvider', lockedRows);

/** `GET_LOCK`, or Postgres advisory locks. */
export const advisoryLocks = (type) =>
  sessionLocks(`typeorm advisory, ${type}`, type, 'TypeOrmAdvisoryLockProvider', (server) => server.advisoryLocks());

/** Locks that live as long as their connection. */
const sessionLocks = (title, type, provider, remainingLocks) => ({
  title,
  /** The session guard frees the lock of a frozen or disconnected holder. MariaDB counts it in whole seconds. */
  recovery: 2 * GUARD + 4_000,
  lifetime: GUARD,
  sessionsEndWithin: SESSIONS_END_WITHIN,
  fair: false,
  faults: SQL_FAULTS,
  /**
   * The server frees the lock when the connection ends, and the holder notices a moment later. If only the client's
   * side has ended, its process itself ends the other side once it has reported the loss, and the task notices a moment
   * later. Writes in the lock's own transaction are rolled back. Other writes are refused because of their token.
   */
  allows: Object.fromEntries(
    [
      'KILL CONNECTION',
      'server restarted',
      'connections reset',
      'clients reset',
      'connections forgotten',
      'connections refused',
      'requests lost',
      'replies lost',
    ].map((name) => [name, ['overlap']]),
  ),
  excuse: 'The connection ended and the server freed the lock. The holder notices within half a second',

  /** The sockets end together, but the holder notices only when its process runs. */
  noticedWithin: 500,

  async startBackend({ random, start }) {
    const { startSql } = await import('./sql-server.mjs');
    const server = await (start ?? startSql)(type, random);
    const { conditions } = server;
    return { servers: [server], conditions, remainingLocks: () => remainingLocks(server), stop: () => server.stop() };
  },

  async connect({ library, ports, account, fencing = true, sessionGuard = GUARD }) {
    const { dataSource } = await import('./sql-server.mjs');
    const providers = await load(library, 'providers/typeorm/index.js');
    const locks = new providers[provider]({
      dataSource: dataSource(type, ports[0], account),
      synchronize: true,
      fencing,
      sessionGuard,
      commandTimeout: 500,
      // Fewer connections than keys, so that the pool is always exhausted.
      maxConnections: 2,
    });
    return managed({ library, provider: locks, lifetime: sessionGuard });
  },
});

async function lockedRows({ withConnection }) {
  const { hasLockTable } = await import('./sql-server.mjs');
  return withConnection(async (admin) => {
    if (!(await hasLockTable(admin))) return [];
    return admin.transaction(async (manager) => {
      const all = await manager.query(`SELECT name FROM distributed_lock WHERE name LIKE 'lock:%'`);
      const free = await manager.query(
        `SELECT name FROM distributed_lock WHERE name LIKE 'lock:%' FOR UPDATE SKIP LOCKED`,
      );
      // A set, because a soak leaves tens of thousands of rows.
      const isFree = new Set(free.map(({ name }) => String(name)));
      return all.map(({ name }) => String(name)).filter((name) => !isFree.has(name));
    });
  });
}
