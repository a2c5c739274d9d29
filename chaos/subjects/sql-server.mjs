import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DataSource } from 'typeorm';
import { rootOf, ROWS } from '../../test/matrix/rows.mjs';
import { hasMySql, startMariaDb, startMySqlOrMariaDb, startPostgres } from '../../test/servers/sql-server.mjs';

/** One server that clients reach by two addresses, as a host in two networks. Other systems than Linux have only the first by themselves. */
export const ADDRESSES = process.platform === 'linux' ? ['127.0.0.1', '127.0.0.2'] : ['127.0.0.1'];

/** MariaDB has no list of advisory locks without this plugin. */
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
      // Debian 12 has none.
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

/** One database server, and what an operator can do with it. MariaDB and MySQL have an `sql_mode` that is drawn. */
export async function startSql(type, random) {
  const database = DATABASES[type];
  const folder = await mkdtemp(join(tmpdir(), 'lock-chaos-sql-'));
  // The server runs it whenever it starts, before it lets in clients.
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

/** Opens a connection for each task, because the faults would end one that stays open. */
export async function withConnection(type, port, task) {
  const admin = await dataSource(type, port).initialize();
  try {
    return await task(admin);
  } finally {
    await admin.destroy();
  }
}

/** What an operator sees and does on the server that `current()` returns. */
export function operatorOf(type, current) {
  const database = DATABASES[type];
  const connected = (task) => withConnection(type, current().port, task);
  const others = async (admin) => (await admin.query(database.others)).map(({ id }) => id);
  return {
    withConnection: connected,
    /** Ends about half of the connections, also in the middle of a statement. */
    killConnections: (random) =>
      connected(async (admin) => {
        const victims = (await others(admin)).filter(() => random.chance(0.5));
        await Promise.all(victims.map((id) => admin.query(database.kill(id)).catch(() => undefined)));
      }),
    /** Ends what about half of the sessions do, each time when `moment` resolves to true, until it resolves to false. The sessions stay. */
    cancelStatements: (random, times, moment) =>
      connected(async (admin) => {
        for (let time = 0; time < times; time += 1) {
          const victims = (await others(admin)).filter(() => random.chance(0.5));
          if (!(await moment())) return;
          await database.cancel(admin, victims);
        }
      }),
    /** How many sessions the server has with clients that have these ports. */
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

/** Gives new sessions about a fifth of the modes that this server has. Resolves to their names. */
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

/** An account of MariaDB that may not write on a server that is read-only, as root may. */
export const LIMITED_ACCOUNT = { username: 'application' };

/** A DataSource as the application has it, not initialized. */
export function dataSource(type, port, account) {
  return new DataSource({ type, host: '127.0.0.1', port, ...DATABASES[type].account, ...account });
}

/** Whether a worker could make the table of the locks: no lock works without it. */
export async function hasLockTable(admin) {
  const runner = admin.createQueryRunner();
  try {
    return await runner.hasTable('distributed_lock');
  } finally {
    await runner.release();
  }
}

/** The version locks that are still held. The row of an expired lease is unchanged, but the lock is free. */
export async function leases({ withConnection }) {
  const now = Date.now() * 1_000;
  const rows = await withConnection(async (admin) =>
    (await hasLockTable(admin))
      ? admin.query(
          `SELECT name, holder, holders FROM distributed_lock WHERE name LIKE '%#lease:%' AND expires > ${now}`,
        )
      : [],
  );
  // A limited holder is `;<holder>=<end>,…`; `~` instead of `=` is one that is retained.
  const isHeld = ({ holder, holders }) =>
    holder !== null || Array.from(String(holders).matchAll(/=(\d+),/g)).some(([, end]) => Number(end) > now);
  return rows.filter(isHeld).map(({ name }) => String(name));
}
