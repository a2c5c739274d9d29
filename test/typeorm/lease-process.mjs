// A process of its own that takes a key again and again, for the tests of leases:
// node lease-process.mjs <library> <options of the DataSource> <keys> <rounds>
// It writes a line for each section, and does in it what two at the same time would do wrong.
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const [library, options, keys, rounds] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${library}/${file}`).href);
const [{ DataSource }, { LockManager }, { TypeOrmVersionLockProvider }] = await Promise.all([
  load('node_modules/typeorm/index.mjs'),
  load('core/lock-manager.js'),
  load('providers/typeorm/index.js'),
]);

const { driverPath, ...rest } = JSON.parse(options);
const driver = driverPath && createRequire(import.meta.url)(driverPath);
// The timers of a wait keep no process alive, and SQLite has no socket that does.
const alive = setInterval(() => undefined, 60_000);
const dataSource = new DataSource({ ...rest, ...(driver && { driver }) });
// The collation of MySQL takes 'a' for 'A'.
const name = dataSource.options.type === 'mariadb' ? 'BINARY name' : 'name';
await dataSource.initialize();
const provider = new TypeOrmVersionLockProvider({ dataSource, synchronize: true });
const locks = new LockManager({ providers: { sql: provider }, namespace: 'test' });
await locks.start();
for (let round = 0; round < Number(rounds); round += 1) {
  const key = keys.split(',')[round % keys.split(',').length];
  await locks.withLock(
    key,
    async ({ fencingToken }) => {
      const [{ n }] = await dataSource.query(`SELECT n FROM counters WHERE ${name} = '${key}'`);
      await sleep(1);
      await dataSource.query(`UPDATE counters SET n = ${Number(n) + 1} WHERE ${name} = '${key}'`);
      process.stdout.write(`${key} ${fencingToken}\n`);
    },
    { wait: 120_000 },
  );
}
await locks.stop();
await dataSource.destroy();
clearInterval(alive);
