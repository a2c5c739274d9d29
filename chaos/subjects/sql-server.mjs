import { DataSource } from 'typeorm';
import { rootOf } from '../../test/matrix/root.mjs';
import { ROWS } from '../../test/matrix/rows.mjs';
import { hasMySql, startMariaDb, startMySqlOrMariaDb, startPostgres } from '../../test/servers/sql-server.mjs';

const MARIADB = {
  start: startMariaDb,
  account: { username: 'root', database: 'test' },
  others: 'SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> "Daemon"',
  kill: (id) => `KILL CONNECTION ${id}`,
};
const DATABASES = {
  mariadb: MARIADB,
  mysql: {
    ...MARIADB,
    async start() {
      // Debian 12 has none.
      if (!hasMySql())
        process.env.LOCK_TEST_ROOT = (await rootOf(ROWS.find(({ server }) => server === 'MySQL'))).folder;
      return startMySqlOrMariaDb();
    },
  },
  postgres: {
    start: startPostgres,
    account: { username: 'postgres' },
    others: `SELECT pid AS id FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`,
    kill: (id) => `SELECT pg_terminate_backend(${id})`,
  },
};

/** One database server, and what an operator can do with it. */
export async function startSql(type) {
  const database = DATABASES[type];
  const server = await database.start();
  // Opens a connection for each query, because the faults would end one that stays open.
  async function withConnection(task) {
    const admin = await dataSource(type, server.port).initialize();
    try {
      return await task(admin);
    } finally {
      await admin.destroy();
    }
  }
  const others = async (admin) => (await admin.query(database.others)).map(({ id }) => id);
  return {
    port: server.port,
    withConnection,
    signal: (name) => server.signal(name),
    crash: (options) => server.crash(options),
    /** Ends about half of the connections, also in the middle of a statement. */
    killConnections: (random) =>
      withConnection(async (admin) => {
        const victims = (await others(admin)).filter(() => random.chance(0.5));
        await Promise.all(victims.map((id) => admin.query(database.kill(id)).catch(() => undefined)));
      }),
    connections: () => withConnection(async (admin) => (await others(admin)).length),
    stop: () => server.stop(),
  };
}

/** A DataSource as the application has it, not initialized. */
export function dataSource(type, port) {
  return new DataSource({ type, host: '127.0.0.1', port, ...DATABASES[type].account });
}

/** The version locks that are still held. The row of an expired lease is unchanged, but the lock is free. */
export async function leases({ withConnection }) {
  const now = Date.now() * 1_000;
  const rows = await withConnection((admin) =>
    admin.query(`SELECT name, holder, holders FROM distributed_lock WHERE name LIKE '%#lease:%' AND expires > ${now}`),
  );
  // A limited holder is `;<holder>=<end>,…`; `~` instead of `=` is one that is retained.
  const isHeld = ({ holder, holders }) =>
    holder !== null || Array.from(String(holders).matchAll(/=(\d+),/g)).some(([, end]) => Number(end) > now);
  return rows.filter(isHeld).map(({ name }) => String(name));
}
