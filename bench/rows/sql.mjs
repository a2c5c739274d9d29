// The SQL row of the design: a lock and its release against mysql2 that sends the same statements, in the same run. The server
// runs on core 0, the clients on core 1; candidates take turns. Raw callers have a connection each, taken from no pool.
import { spawnSync } from 'node:child_process';
import mysql from 'mysql2/promise';
import { DataSource } from 'typeorm';
import { LockManager } from '../../dist/index.js';
import { TypeOrmAdvisoryLockProvider, TypeOrmRowLockProvider } from '../../dist/providers/typeorm/index.js';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startMariaDb } from '../../test/servers/sql-server.mjs';
import { interleave, median } from '../measure.mjs';

const BAR = 0.85;
const CALLERS = 16;
const MILLISECONDS = 300;
const ROUNDS = 15;

ensureServers(['mariadbd']);
const server = await startMariaDb();
// All its threads: those that serve connections come later and inherit the core.
spawnSync('taskset', ['-a', '-p', '-c', '0', String(server.pid)]);

const dataSource = new DataSource({ type: 'mysql', url: server.url });
// Half of the connections may be shared, so that both kinds of locks can have as many as the raw callers.
const options = { dataSource, synchronize: true, maxConnections: 2 * CALLERS };
const locks = new LockManager({
  providers: { row: new TypeOrmRowLockProvider(options), advisory: new TypeOrmAdvisoryLockProvider(options) },
  default: 'row',
});
await locks.start();

const connections = await Promise.all(Array.from({ length: CALLERS }, () => mysql.createConnection(server.url)));
for (const connection of connections) await connection.query(`SET SESSION tx_isolation = 'READ-COMMITTED'`);
const name = (caller) => `lock:key:${caller}`;

const [[{ version }]] = await connections[0].query('SELECT VERSION() AS version');
const { default: driver } = await import('mysql2/package.json', { with: { type: 'json' } });
const { default: orm } = await import('typeorm/package.json', { with: { type: 'json' } });
console.log(`\n${version}, mysql2 ${driver.version}, typeorm ${orm.version}, Node ${process.version}; medians`);

const kinds = {
  'row lock': {
    raw: async (caller) => {
      const connection = connections[caller];
      await connection.query('START TRANSACTION');
      await connection.query('SELECT 1 FROM `distributed_lock` WHERE name = ? FOR UPDATE SKIP LOCKED', [name(caller)]);
      await connection.query('COMMIT');
    },
    ours: async (caller) => (await locks.acquire(`key:${caller}`, { provider: 'row' })).release(),
  },
  'advisory lock': {
    raw: async (caller) => {
      const connection = connections[caller];
      await connection.query('SELECT GET_LOCK(?, 0) AS done', [name(caller)]);
      await connection.query('SELECT RELEASE_LOCK(?) AS done', [name(caller)]);
    },
    ours: async (caller) => (await locks.acquire(`key:${caller}`, { provider: 'advisory' })).release(),
  },
};

for (const [kind, candidates] of Object.entries(kinds)) {
  for (const callers of [1, CALLERS]) {
    const load = (cycle) => () => cyclesPerSecond(cycle, callers);
    const rates = await interleave({ raw: load(candidates.raw), ours: load(candidates.ours) }, { rounds: ROUNDS });
    const before = await statements();
    const { cycles } = await run(candidates.ours, callers);
    const perCycle = ((await statements()) - before) / cycles;
    const ratio = median(rates.ours.map((rate, round) => rate / rates.raw[round]));
    console.log(
      `\n${kind}, ${callers === 1 ? 'one caller' : `${callers} callers on ${callers} keys`}, cycles a second`,
    );
    console.log(`  raw mysql2  ${Math.round(median(rates.raw))}`);
    console.log(
      `  ours        ${Math.round(median(rates.ours))}  ${ratio.toFixed(2)} × raw, ${perCycle.toFixed(2)} statements a cycle  ` +
        `${ratio >= BAR ? 'within' : 'MISSES'} the bar of ${BAR} ×`,
    );
  }
}

await locks.stop();
await Promise.all(connections.map((connection) => connection.end()));
await server.stop();

async function cyclesPerSecond(cycle, callers) {
  const { cycles, seconds } = await run(cycle, callers);
  return cycles / seconds;
}

async function run(cycle, callers) {
  const start = performance.now();
  let cycles = 0;
  await Promise.all(
    Array.from({ length: callers }, async (_, caller) => {
      while (performance.now() - start < MILLISECONDS) {
        await cycle(caller);
        cycles += 1;
      }
    }),
  );
  return { cycles, seconds: (performance.now() - start) / 1_000 };
}

async function statements() {
  const [[row]] = await connections[0].query(`SHOW GLOBAL STATUS LIKE 'Questions'`);
  return Number(row.Value);
}
