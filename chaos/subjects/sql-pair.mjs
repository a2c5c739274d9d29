import { setTimeout as sleep } from 'node:timers/promises';
import { startMariaDb, startPostgres, startPostgresStandby } from '../../test/servers/sql-server.mjs';
import { startTcpProxy } from '../../test/servers/tcp-proxy.ts';
import { ADDRESSES, LIMITED_ACCOUNT, LISTS_ADVISORY_LOCKS, operatorOf, withConnection } from './sql-server.mjs';

const CATCH_UP_TIMEOUT = 10_000;

/**
 * Starts a writer and its replica, presented as one server whose `port` is the current writer's.
 *
 * - A planned switchover is `makeReadOnly`, `promote` (which waits until the replica has caught up), and `replaceOld`
 *   (which turns the old writer into a replica). Until then, the old writer keeps its connections.
 * - Postgres replicates synchronously, so it also has an unplanned one: `cutOffReplica`, `killWriter`, `promote`,
 *   `replaceOld`.
 */
export async function startSqlPair(type) {
  const pair = await PAIRS[type]();
  return {
    ...operatorOf(type, pair.writer),
    ...pair,
    get port() {
      return pair.writer().port;
    },
    addresses: ADDRESSES,
  };
}

const PAIRS = { mariadb: startMariaDbPair, postgres: startPostgresPair };

async function startMariaDbPair() {
  const query = (server, sql) => withConnection('mariadb', server.port, (admin) => admin.query(sql));
  // In strict mode, a write that the old writer accepts too late stops the replication, and the run fails.
  const settings = [`--bind-address=${ADDRESSES}`, '--log-bin', '--log-slave-updates', '--gtid-strict-mode'];
  const start = (id) => startMariaDb({ options: [...settings, `--server-id=${id}`] });
  // One after the other, because the second copies the data folder of the first.
  let writer = await start(1);
  let replica = await start(2);
  for (const server of [writer, replica]) {
    await query(server, LISTS_ADVISORY_LOCKS);
    await query(server, `CREATE USER ${LIMITED_ACCOUNT.username}@'127.0.0.1'`);
    await query(server, `GRANT ALL ON test.* TO ${LIMITED_ACCOUNT.username}@'127.0.0.1'`);
    // Both servers have run these statements, so they must not be replicated.
    await query(server, 'RESET MASTER');
  }
  async function replicate() {
    await query(replica, 'SET GLOBAL read_only = ON');
    await query(replica, 'SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos');
    const source = `MASTER_HOST = '127.0.0.1', MASTER_PORT = ${writer.port}, MASTER_USER = 'root'`;
    await query(replica, `CHANGE MASTER TO ${source}, MASTER_USE_GTID = slave_pos`);
    await query(replica, 'START SLAVE');
  }
  await replicate();
  return {
    writer: () => writer,
    makeReadOnly: () => query(writer, 'SET GLOBAL read_only = ON'),
    async promote() {
      const [{ position }] = await query(writer, 'SELECT @@GLOBAL.gtid_binlog_pos AS position');
      const [{ failed }] = await query(
        replica,
        `SELECT MASTER_GTID_WAIT('${position}', ${CATCH_UP_TIMEOUT / 1_000}) AS failed`,
      );
      if (Number(failed) !== 0) throw new Error(`The replica did not reach ${position}.`);
      await query(replica, 'STOP SLAVE');
      await query(replica, 'SET GLOBAL read_only = OFF');
      [writer, replica] = [replica, writer];
    },
    /** The old writer loses its connections and becomes the replica. */
    async replaceOld() {
      await operatorOf('mariadb', () => replica).killConnections({ chance: () => true });
      await replicate();
    },
    stop: () => Promise.all([writer.stop(), replica.stop()]),
  };
}

async function startPostgresPair() {
  const query = (server, sql) => withConnection('postgres', server.port, (admin) => admin.query(sql));
  let writer = await startPostgres({ addresses: ADDRESSES });
  const link = await startTcpProxy(writer.port);
  let standby = await startPostgresStandby(writer, { sourcePort: link.port, addresses: ADDRESSES });
  let old;
  return {
    writer: () => writer,
    /** Applies to all new transactions. Sessions stay open. */
    async makeReadOnly() {
      await query(writer, 'ALTER SYSTEM SET default_transaction_read_only = on');
      await query(writer, 'SELECT pg_reload_conf()');
      const shown = `SELECT current_setting('default_transaction_read_only') AS value`;
      await until(async () => (await query(writer, shown))[0].value === 'on', 'Postgres did not become read-only');
    },
    async promote() {
      if (old === undefined) {
        await catchUp();
        old = writer;
      }
      await standby.promote();
      writer = standby;
      standby = undefined;
    },
    cutOffReplica: () => link.refuse(),
    async killWriter() {
      old = writer;
      await old.stop();
    },
    async replaceOld() {
      await old.stop();
      old = undefined;
      link.leadTo(writer.port);
      link.admit();
      standby = await startPostgresStandby(writer, { sourcePort: link.port, addresses: ADDRESSES });
    },
    stop: () => Promise.all([writer, standby, old].map((server) => server?.stop()).concat(link.close())),
  };

  /** Waits until the standby has everything that the old writer acknowledged. */
  async function catchUp() {
    const [{ now }] = await query(writer, 'SELECT clock_timestamp()::text AS now');
    // A statement that started earlier may still write. A SELECT that waits for a lock writes nothing.
    const mayWrite = `state = 'active' AND backend_type = 'client backend' AND query NOT LIKE 'SELECT%' AND query_start < '${now}'`;
    await until(
      async () => (await query(writer, `SELECT pid FROM pg_stat_activity WHERE ${mayWrite}`)).length === 0,
      'The statements of the old writer did not end',
    );
    const [{ end }] = await query(writer, 'SELECT pg_current_wal_lsn()::text AS end');
    const isThere = `SELECT pid FROM pg_stat_replication WHERE replay_lsn >= '${end}'`;
    await until(async () => (await query(writer, isThere)).length > 0, 'The standby did not catch up');
    // Row locks on the old writer end with a COMMIT, which would otherwise wait for the standby forever.
    await query(writer, 'ALTER SYSTEM RESET synchronous_standby_names');
    await query(writer, 'SELECT pg_reload_conf()');
  }
}

async function until(condition, failure) {
  for (const end = performance.now() + CATCH_UP_TIMEOUT; !(await condition()); await sleep(10)) {
    if (performance.now() > end) throw new Error(`${failure} within ${CATCH_UP_TIMEOUT} ms.`);
  }
}
