import { fork } from 'node:child_process';
import { once } from 'node:events';
import { Session } from 'node:inspector';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedisServer } from '../test/servers/redis-server.mjs';
import { ensureBuilt } from './build.mjs';
import { root } from './ensure-installed.mjs';

/*
 * How many of our functions one `LockService.withLock` on one Redis enters: until its command leaves, until its task runs, and
 * altogether. Counted by precise V8 coverage, because a stack shows only functions that have not returned. `--json` prints the numbers
 * alone.
 */
ensureBuilt();
const OURS = `file://${root}/dist/`;
const { LockManager, LockService } = await import(`${OURS}index.js`);
const { RedisLockProvider } = await import(`${OURS}providers/redis/index.js`);

if (process.send) await hold(process.argv[2]);
else await count();

async function count() {
  const server = await startRedisServer();
  const { locks, stop } = await start({ client: new Redis(server.port, { lazyConnect: true }) });
  // What is compiled or looked up once is not counted.
  for (let round = 0; round < 20; round += 1) await locks.withLock('warm', () => undefined);
  const holder = fork(fileURLToPath(import.meta.url), [server.url]);
  await once(holder, 'message');
  const results = {
    uncontended: await measured(locks, 'free'),
    contended: await measured(locks, 'held', () => holder.send('release')),
  };
  await once(holder, 'exit');
  await stop();
  await server.stop();
  for (const [name, { functions, ...numbers }] of Object.entries(results)) {
    if (process.argv.includes('--json')) continue;
    console.log(`${name}: ${JSON.stringify(numbers)}`);
    for (const each of functions) console.log(`  ${each}`);
  }
  if (process.argv.includes('--json')) {
    console.log(JSON.stringify(results, (key, value) => (key === 'functions' ? undefined : value)));
  }
}

/** Another process, which has the lock until it is asked for it. */
async function hold(url) {
  const { locks, stop } = await start({ url });
  const lock = await locks.acquire('held');
  process.send('held');
  await once(process, 'message');
  await lock.release();
  await stop();
  process.disconnect();
}

async function start(options) {
  const manager = new LockManager({ providers: { redis: new RedisLockProvider(options) } });
  await manager.start();
  const stop = async () => {
    await manager.stop();
    options.client?.disconnect();
  };
  return { locks: new LockService(manager), stop };
}

/** @param whenQueued called when the server has queued it */
async function measured(locks, key, whenQueued) {
  if (whenQueued) locks.events.once('waiting', whenQueued);
  const inspector = new Session();
  inspector.connect();
  // Its answers come before `post` returns.
  const entered = new Set();
  const look = () => {
    inspector.post('Profiler.takePreciseCoverage', (_, { result }) => {
      for (const { url, functions } of result) {
        if (!url.startsWith(OURS)) continue;
        for (const { functionName, ranges } of functions) {
          const [{ count: calls, startOffset }] = ranges;
          // The first of a file is its top level.
          if (calls > 0 && startOffset > 0)
            entered.add(`${url.slice(OURS.length)} ${functionName || '(arrow)'} at ${startOffset}`);
        }
      }
    });
    return entered.size;
  };
  inspector.post('Profiler.enable');
  inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  const { sendCommand } = Redis.prototype;
  let toWire;
  Redis.prototype.sendCommand = function (command, ...rest) {
    if (command.name === 'evalsha') toWire ??= look();
    return sendCommand.call(this, command, ...rest);
  };
  let toTask;
  await locks.withLock(key, () => {
    toTask = look();
  });
  const altogether = look();
  Redis.prototype.sendCommand = sendCommand;
  inspector.disconnect();
  const functions = [...entered].sort();
  return { toWire, toTask, altogether, files: new Set(functions.map((name) => name.split(' ')[0])).size, functions };
}
