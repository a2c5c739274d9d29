import { DataSource } from 'typeorm';
import { startMariaDb, startPostgres } from '../../test/servers/sql-server.mjs';

const OPERATORS = {
  mariadb: {
    start: startMariaDb,
    account: { username: 'root', database: 'test' },
    others: 'SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> "Daemon"',
    kill: (id) => `KILL CONNECTION ${id}`,
  },
  postgres: {
    start: startPostgres,
    account: { username: 'postgres' },
    others: `SELECT pid AS id FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`,
    kill: (id) => `SELECT pg_terminate_backend(${id})`,
  },
};

/** One database, and the actions of an operator on it. */
export async function startSql(type) {
  const operator = OPERATORS[type];
  const server = await operator.start();
  // A connection for each question: the faults would hit connections that stay open.
  async function ask(question) {
    const admin = await dataSource(type, server.port).initialize();
    try {
      return await question(admin);
    } finally {
      await admin.destroy();
    }
  }
  const others = async (admin) => (await admin.query(operator.others)).map(({ id }) => id);
  return {
    port: server.port,
    ask,
    signal: (name) => server.signal(name),
    crash: (options) => server.crash(options),
    /** Ends about half of the connections, also in the middle of a statement. */
    killConnections: (random) =>
      ask(async (admin) => {
        const victims = (await others(admin)).filter(() => random.chance(0.5));
        await Promise.all(victims.map((id) => admin.query(operator.kill(id)).catch(() => undefined)));
      }),
    connections: () => ask(async (admin) => (await others(admin)).length),
    stop: () => server.stop(),
  };
}

/** The application's own DataSource, not initialized. */
export function dataSource(type, port) {
  return new DataSource({ type, host: '127.0.0.1', port, ...OPERATORS[type].account });
}

/** The leases of version locks that are still held: a lease that has expired is not, although its row is unchanged. */
export async function leases({ ask }) {
  const now = Date.now() * 1_000;
  const rows = await ask((admin) =>
    admin.query(`SELECT name FROM distributed_lock WHERE holder IS NOT NULL AND expires > ${now}`),
  );
  return rows.map(({ name }) => String(name));
}
