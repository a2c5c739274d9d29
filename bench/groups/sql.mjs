// SQL: acquire and release, against mysql2 that sends the same statements in the same run. The server runs on core 0, the clients on
// core 1, and candidates take turns. Each raw caller has a connection of its own, without a pool.
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import mysql from 'mysql2/promise';
import { DataSource } from 'typeorm';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startMariaDb } from '../../test/servers/sql-server.mjs';
import { builds, load as loadBuild, OURS } from '../builds.mjs';
import { loop, loopRounds, manyKeys, oneCaller } from '../loads.mjs';
import { interleave, isQuick, lasting } from '../measure.mjs';
import { reportLoops } from '../report-loops.mjs';
import { about, report, versionOf } from '../results.mjs';

const RAW = 'raw mysql2';
const USUAL = 'raw mysql2, with START TRANSACTION';
const BAR = 0.85;
const CALLERS = 16;
const LEASE = 10_000;
const HELD = isQuick ? 1_000 : 10_000;

ensureServers(['mariadbd']);
const server = await startMariaDb();
// All its threads. Those that serve connections start later and inherit the core.
spawnSync('taskset', ['-a', '-p', '-c', '0', String(server.pid)]);

const dataSource = new DataSource({ type: 'mysql', url: server.url });
const managers = {};
for (const build of builds) managers[build] = await managerOf(build);
const acquireFrom = (provider, build) => async (key) => {
  const lease = provider === 'version' ? LEASE : undefined;
  const lock = await managers[build].acquire(key, { provider, wait: '60s', lease });
  return () => lock.release();
};

const connections = await Promise.all(Array.from({ length: CALLERS }, () => mysql.createConnection(server.url)));
for (const connection of connections) await connection.query(`SET SESSION tx_isolation = 'READ-COMMITTED'`);
const [[{ version }]] = await connections[0].query('SELECT VERSION() AS version');
about({
  versions: { MariaDB: version.split('-')[0], mysql2: versionOf('mysql2'), typeorm: versionOf('typeorm') },
  settings:
    'One server with its defaults. The raw client sends the same statements. Each of its callers has a connection of its own, without ' +
    'a pool. It checks no answer, watches neither connection nor time, and retries nothing',
});

const NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;
/** By kind of lock: how the raw client acquires and releases the lock of this key. */
const raw = {
  async row(connection, key) {
    await connection.query(
      'SELECT @@global.read_only AS read_only FROM `distributed_lock` WHERE name = ? FOR UPDATE SKIP LOCKED',
      [`lock:${key}`],
    );
    return () => connection.query('ROLLBACK');
  },
  async advisory(connection, key) {
    await connection.query('SELECT IF(true AND @@global.read_only, 2, GET_LOCK(?, 0)) AS done', [`lock:${key}`]);
    return () => connection.query('SELECT COALESCE(RELEASE_LOCK(?), 0) AS done', [`lock:${key}`]);
  },
  async version(connection, key) {
    const [name, holder, lease] = [`lock#lease:${key}`, 'raw', LEASE * 1_000];
    const [[{ token }]] = await connection.query(
      `SELECT holder, token, expires - ${NOW} AS remaining FROM \`distributed_lock\` WHERE name IN (?)`,
      [name],
    );
    await connection.query(
      `UPDATE \`distributed_lock\` SET token = LAST_INSERT_ID(GREATEST(token + 1, ${NOW})), holder = ?, expires = ${NOW} + ? ` +
        `WHERE name = ? AND token = ? AND expires <= ${NOW}`,
      [holder, lease, name, token],
    );
    return () =>
      connection.query(
        `UPDATE \`distributed_lock\` SET holder = NULL, expires = ${NOW} + ? WHERE name = ? AND holder = ? AND expires > ${NOW}`,
        [0, name, holder],
      );
  },
};

/** A row lock as it is usually written, with one more round trip. */
async function usual(connection, key) {
  await connection.query('START TRANSACTION');
  await connection.query('SELECT 1 FROM `distributed_lock` WHERE name = ? FOR UPDATE SKIP LOCKED', [`lock:${key}`]);
  return () => connection.query('COMMIT');
}

for (const provider of Object.keys(raw)) {
  // The key ends with the number of the caller.
  const connectionOf = (key) => connections[Number(key.split('-')[1] ?? 0)];
  const own = Object.fromEntries(builds.map((build) => [build, acquireFrom(provider, build)]));
  const candidates = { [RAW]: (key) => raw[provider](connectionOf(key), key), ...own };
  if (provider === 'row') candidates[USUAL] = (key) => usual(connectionOf(key), key);
  // The first statement of a row lock begins its transaction.
  for (const connection of connections)
    await connection.query(`SET SESSION autocommit = ${provider === 'row' ? 0 : 1}`);
  const loads = {
    'one caller': (acquire) => oneCaller(acquire, lasting(200)),
    [`${CALLERS} callers on ${CALLERS} keys`]: (acquire) => manyKeys(acquire, lasting(200), CALLERS),
  };
  // Creates the rows, also for the raw client, and lets the compiler see thousands of cycles of each candidate.
  for (const acquire of [candidates[OURS], ...Object.values(candidates)]) {
    await oneCaller(acquire, lasting(500));
    await manyKeys(acquire, lasting(3_000), CALLERS);
  }
  for (const [callers, load] of Object.entries(loads)) {
    const rounds = await interleave(
      Object.fromEntries(Object.entries(candidates).map(([name, acquire]) => [name, () => load(acquire)])),
      { rounds: 15 },
    );
    const statements = await statementsPerCycle(candidates[OURS], load);
    report({
      what: `${titleOf(provider)}, ${callers}`,
      unit: 'cycles a second',
      better: 'more',
      ours: OURS,
      base: RAW,
      bar: { atLeast: BAR, of: 'base' },
      rounds,
      notes: { [OURS]: `${statements.toFixed(2)} statements a cycle` },
    });
  }
  // The grant of a row lock is its transaction, so no other caller can follow under it.
  if (provider !== 'row') await hotKey(provider, own);
}
await heldLocks();

for (const locks of Object.values(managers)) await locks.stop();
await Promise.all(connections.map((connection) => connection.end()));
await server.stop();

async function managerOf(build) {
  const { LockManager, TypeOrmAdvisoryLockProvider, TypeOrmRowLockProvider, TypeOrmVersionLockProvider, namespace } =
    await loadBuild(build, 'typeorm');
  // Half of the connections may be shared, so that every kind of lock can use as many as the raw callers.
  const options = { dataSource, synchronize: true, maxConnections: 2 * CALLERS };
  const locks = new LockManager({
    providers: {
      row: new TypeOrmRowLockProvider(options),
      advisory: new TypeOrmAdvisoryLockProvider(options),
      version: new TypeOrmVersionLockProvider(options),
    },
    default: 'row',
    namespace,
  });
  await locks.start();
  return locks;
}

/** Waiters of one process that acquire one key again and again. */
async function hotKey(provider, own) {
  const load = (acquire) => loop(acquire, { callers: CALLERS, milliseconds: lasting(1_000) });
  const results = await interleave(
    Object.fromEntries(Object.entries(own).map(([name, acquire]) => [name, () => load(acquire)])),
    { rounds: 5 },
  );
  const what = `${titleOf(provider)}, ${CALLERS} waiters looping on one key in one process`;
  reportLoops(what, loopRounds(results), { beside: { atLeast: 3 } });
}

function titleOf(provider) {
  return `${provider[0].toUpperCase()}${provider.slice(1)} lock`;
}

async function statementsPerCycle(acquire, load) {
  let cycles = 0;
  const before = await statements();
  await load((key) => {
    cycles += 1;
    return acquire(key);
  });
  return ((await statements()) - before) / cycles;
}

async function heldLocks() {
  const releases = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: CALLERS }, async () => {
      while (next < HELD) releases.push(await acquireFrom('version', OURS)(`held-${next++}`));
    }),
  );
  const milliseconds = lasting(20_000);
  const [cpu, before] = [process.cpuUsage(), await statements()];
  await sleep(milliseconds);
  const { user, system } = process.cpuUsage(cpu);
  const sent = (await statements()) - before;
  report({
    what: `${HELD.toLocaleString('en')} version locks held with leases of ${LEASE / 1_000} s and renewed`,
    unit: '% of one core',
    better: 'less',
    ours: OURS,
    bar: { atMost: 5 },
    rounds: { [OURS]: [(user + system) / 10 / milliseconds] },
    notes: { [OURS]: `${((sent * 1_000) / milliseconds).toFixed(1)} statements a second` },
  });
  await Promise.all(releases.map((release) => release()));
}

async function statements() {
  const [[row]] = await connections[0].query(`SHOW GLOBAL STATUS LIKE 'Questions'`);
  return Number(row.Value);
}
