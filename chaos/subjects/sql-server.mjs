import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DataSource } from 'typeorm';
import { rootOf, ROWS } from '../../test/matrix/rows.mjs';
import { hasMySql, startMariaDb, startMySqlOrMariaDb, startPostgres } from '../../test/servers/sql-server.mjs';

/**
 * One server that clients reach at two addresses, like a host in two networks. Only Linux configures the second one by
 * default.
 */
export const ADDRESSES = process.platform === 'linux' ? ['127.0.0.1', '127.0.0.2'] : ['127.0.0.1'];

/** MariaDB can't list advisory locks without this plugin. */
export const LISTS_ADVISORY_LOCKS = `INSTALL SONAME 'metadata_lock_info'`;

const MARIADB = {
  start: (options) => startMariaDb({ options }),
  account: { username: 'root', database: 'test' },
  others: `SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'`,
  sessionsOf: (ports) =>
    `SELECT id FROM information_schema.processlist WHERE SUBSTRING_INDEX(host, ':', -1) IN (${ports})`,
  advisoryLocks: `SELECT table_schema AS name FROM information_schema.metadata_lock_info WHERE lock_type = 'User lock'`,
  kill: (id) => `KILL CONNECTION ${id}`,
  async cancel(admin, ids) {
    // A session may have ended.
    for (const id of ids) await admin.query(`KILL QUERY ${id}`).catch(() => undefined);
  },
};
const DATABASES = {
  mariadb: MARIADB,
  mysql: {
    ...MARIADB,
    async start(options) {
      // Debian 12 has no MySQL package.
      if (!hasMySql())
        process.env.LOCK_TEST_ROOT = (await rootOf(ROWS.find(({ server }) => server === 'MySQL'))).folder;
      return startMySqlOrMariaDb({ options });
    },
    advisoryLocks: `SELECT object_name AS name FROM performance_schema.metadata_locks WHERE object_type = 'USER LEVEL LOCK'`,
  },
  postgres: {
    start: () => startPostgres({ addresses: ADDRESSES }),
    account: { username: 'postgres' },
    others: `SELECT pid AS id FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`,
    sessionsOf: (ports) => `SELECT pid AS id FROM pg_stat_activity WHERE client_port IN (${ports})`,
    advisoryLocks: `SELECT classid || ' ' || objid AS name FROM pg_locks WHERE locktype = 'advisory'`,
    kill: (id) => `SELECT pg_terminate_backend(${id})`,
    cancel: (admin, ids) => admin.query(`SELECT pg_cancel_backend(pid) FROM unnest(ARRAY[${ids}]::int[]) AS pid`),
  },
};

/**
 * Starts one database server. The result has the actions of an operator. For MariaDB and MySQL, the `sql_mode` is
 * chosen at random.
 */
export async function startSql(type, random) {
  const database = DATABASES[type];
  const folder = await mkdtemp(join(tmpdir(), 'lock-chaos-sql-'));
  // The server runs this file at every start, before it accepts clients.
  const initFile = join(folder, 'init.sql');
  await writeFile(initFile, '');
  const server = await database.start([`--bind-address=${ADDRESSES}`, `--init-file=${initFile}`]);
  const operator = operatorOf(type, () => server);
  let conditions;
  if (type !== 'postgres') {
    const sqlMode = await operator.withConnection((admin) => drawSqlMode(admin, random));
    await writeFile(initFile, `SET GLOBAL sql_mode = '${sqlMode}';\n`);
    conditions = { sql_mode: sqlMode };
  }
  if (type === 'mariadb') await operator.withConnection((admin) => admin.query(LISTS_ADVISORY_LOCKS));
  return {
    ...operator,
    port: server.port,
    addresses: ADDRESSES,
    conditions,
    signal: (name) => server.signal(name),
    crash: (options) => server.crash(options),
    async stop() {
      await server.stop();
      await rm(folder, { recursive: true });
    },
  };
}

/** Opens a connection for each task, because the faults would end a permanent one. */
export async function withConnection(type, port, task) {
  const admin = await dataSource(type, port).initialize();
  try {
    return await task(admin);
  } finally {
    await admin.destroy();
  }
}

/** What an operator can see and do on the server that `current()` returns. */
export function operatorOf(type, current) {
  const database = DATABASES[type];
  const connected = (task) => withConnection(type, current().port, task);
  const others = async (admin) => (await admin.query(database.others)).map(({ id }) => id);
  return {
    withConnection: connected,
    /** Ends about half of the connections, even in the middle of a statement. */
    killConnections: (random) =>
      connected(async (admin) => {
        const victims = (await others(admin)).filter(() => random.chance(0.5));
        await Promise.all(victims.map((id) => admin.query(database.kill(id)).catch(() => undefined)));
      }),
    /**
     * Cancels the current statements of about half of the sessions each time `moment` resolves to true, until it
     * resolves to false. The sessions stay open.
     */
    cancelStatements: (random, times, moment) =>
      connected(async (admin) => {
        for (let time = 0; time < times; time += 1) {
          const victims = (await others(admin)).filter(() => random.chance(0.5));
          if (!(await moment())) return;
          await database.cancel(admin, victims);
        }
      }),
    /** How many sessions the server has with clients on these ports. */
    sessionsOf: (ports) =>
      connected(async (admin) => (ports.length > 0 ? (await admin.query(database.sessionsOf(ports))).length : 0)),
    /** The advisory locks of all sessions. */
    advisoryLocks: async () => {
      const rows = await connected((admin) => admin.query(database.advisoryLocks));
      return rows.map(({ name }) => `advisory lock ${name}`);
    },
    connections: () => connected(async (admin) => (await others(admin)).length),
  };
}

/** Gives new sessions about a fifth of this server's modes. Resolves to their names. */
async function drawSqlMode(admin, random) {
  const runner = admin.createQueryRunner();
  const modeOf = async (scope) => (await runner.query(`SELECT @@${scope}.sql_mode AS mode`))[0].mode;
  try {
    const modes = [];
    for (let bit = 0n; bit < 64n; bit += 1n) {
      const isMode = await runner.query(`SET SESSION sql_mode = ${1n << bit}`).then(
        () => true,
        () => false,
      );
      if (isMode) modes.push(await modeOf('SESSION'));
    }
    await runner.query(`SET GLOBAL sql_mode = '${modes.filter(() => random.chance(0.2)).join()}'`);
    return await modeOf('GLOBAL');
  } finally {
    await runner.release();
  }
}

/** A MariaDB account that, unlike root, may not write on a read-only server. */
export const LIMITED_ACCOUNT = { username: 'application' };

/** A DataSource as an application would have it, not initialized. */
export function dataSource(type, port, account) {
  return new DataSource({ type, host: '127.0.0.1', port, ...DATABASES[type].account, ...account });
}

/** Whether a worker was able to create the lock table. Without it, no lock works. */
export async function hasLockTable(admin) {
  const runner = admin.createQueryRunner();
  try {
    return await runner.hasTable('distributed_lock');
  } finally {
    await runner.release();
  }
}

/** The version locks that are still held. The row of an expired lease is unchanged, but its lock is free. */
export async function leases({ withConnection }) {
  const now = Date.now() * 1_000;
  const rows = await withConnection(async (admin) =>
    (await hasLockTable(admin))
      ? admin.query(
          `SELECT name, holder, holders FROM distributed_lock WHERE name LIKE '%#lease:%' AND expires > ${now}`,
        )
      : [],
  );
  // A limited holder is stored as `;<holder>=<end>,…`, with `~` instead of `=` if it is retained.
  const isHeld = ({ holder, holders }) =>
    holder !== null || Array.from(String(holders).matchAll(/=(\d+),/g)).some(([, end]) => Number(end) > now);
  return rows.filter(isHeld).map(({ name }) => String(name));
}
