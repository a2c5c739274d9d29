import { load, managed } from './lock-manager.mjs';
import { SQL_FAULTS } from './sql-faults.mjs';

const GUARD = 1_000;

/** Row locks of this database. */
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
const sessionLocks = (title, type, provider, remainingLocks) => ({
  title,
  /** The session guard frees the lock of a frozen or disconnected holder. MariaDB counts it in whole seconds. */
  recovery: 2 * GUARD + 4_000,
  lifetime: GUARD,
  fair: false,
  // A waiter sends nothing, so it notices only at the end of its wait that its connection was forgotten (the "Limits" of their pages).
  faults: SQL_FAULTS.filter((fault) => fault !== 'connections forgotten'),
  /**
   * The server frees the lock when the connection ends, and the holder notices a moment later. Where only the client's side has ended, its
   * process ends the other side itself when it has reported the loss, and the task notices a moment later. Writes in the lock's own
   * transaction are rolled back. Other writes are refused by their token.
   */
  allows: Object.fromEntries(
    [
      'KILL CONNECTION',
      'server restarted',
      'connections reset',
      'clients reset',
      'connections refused',
      'requests lost',
      'replies lost',
    ].map((name) => [name, ['overlap']]),
  ),
  excuse: 'the connection has ended, and the server has freed the lock. The holder learns that within half a second',

  /** The sockets end together, but the holder notices only when its process runs. */
  noticedWithin: 500,

  async startBackend() {
    const { startSql } = await import('./sql-server.mjs');
    const server = await startSql(type);
    return { servers: [server], remainingLocks: () => remainingLocks(server), stop: () => server.stop() };
  },

  async connect({ library, ports }) {
    const { dataSource } = await import('./sql-server.mjs');
    const providers = await load(library, 'providers/typeorm/index.js');
    const locks = new providers[provider]({
      dataSource: dataSource(type, ports[0]),
      synchronize: true,
      fencing: true,
      sessionGuard: GUARD,
      statementTimeout: 500,
      // Fewer connections than keys, so that the pool is exhausted all the time.
      maxConnections: 2,
    });
    return managed({ library, provider: locks, lifetime: GUARD });
  },
});

async function lockedRows({ withConnection }) {
  return withConnection((admin) =>
    admin.transaction(async (manager) => {
      const all = await manager.query(`SELECT name FROM distributed_lock WHERE name LIKE 'lock:%'`);
      const free = await manager.query(
        `SELECT name FROM distributed_lock WHERE name LIKE 'lock:%' FOR UPDATE SKIP LOCKED`,
      );
      // A set, because a soak leaves tens of thousands of rows.
      const isFree = new Set(free.map(({ name }) => String(name)));
      return all.map(({ name }) => String(name)).filter((name) => !isFree.has(name));
    }),
  );
}

async function advisoryKeys({ withConnection }) {
  const rows = await withConnection((admin) => admin.query(`SELECT objid FROM pg_locks WHERE locktype = 'advisory'`));
  return rows.map(({ objid }) => `advisory lock ${objid}`);
}
