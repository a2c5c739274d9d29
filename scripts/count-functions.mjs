import { fork } from 'node:child_process';
import { once } from 'node:events';
import { Session } from 'node:inspector';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { OURS as THIS_BUILD } from '../bench/builds.mjs';
import { costOfCycle } from '../bench/cycle/cost-of-cycle.mjs';
import { startRedisServer } from '../test/servers/redis-server.mjs';
import { ensureBuilt } from './build.mjs';
import { root } from './ensure-installed.mjs';

/*
 * How many of our functions one `LockService.withLock` on one Redis enters: until its command leaves, until its task runs, and
 * altogether. Counted by precise V8 coverage, because a stack shows only functions that have not returned.
 * `withoutAccessorsAndInitializers` leaves out getters, setters and field initializers, which no code calls as functions.
 * `allocatedBytes` are those of one warm cycle without a network, as `npm run bench -- cycle` measures them. `--json` prints the numbers
 * alone.
 */
ensureBuilt();
const OURS = `file://${root}/dist/`;
const { LockManager, LockService } = await import(`${OURS}index.js`);
const { RedisLockProvider } = await import(`${OURS}providers/redis/index.js`);
/** The names that V8 gives to getters and setters, and to the functions that set the fields of a class. */
const ACCESSOR_OR_INITIALIZER = /^(get|set) |^<\w+_initializer>$/;

if (process.send) await hold(process.argv[2]);
else await count();

async function count() {
  const server = await startRedisServer();
  const { locks, stop } = await start({ client: new Redis(server.port, { lazyConnect: true }) });
  const holder = fork(fileURLToPath(import.meta.url), [server.url]);
  await once(holder, 'message');
  // What is compiled or looked up once is not counted, and neither is a timer that runs out while the holder starts.
  for (let round = 0; round < 20; round += 1) await locks.withLock('warm', () => undefined);
  const results = {
    uncontended: await measured(locks, 'free'),
    contended: await measured(locks, 'held', () => holder.send('release')),
  };
  await once(holder, 'exit');
  await stop();
  await server.stop();
  const { bytes } = await costOfCycle(THIS_BUILD, 'redis', { ...process.env, BENCH_QUICK: '1' });
  const allocatedBytes = Math.round(bytes);
  if (process.argv.includes('--json')) {
    const all = { ...results, allocatedBytes };
    console.log(JSON.stringify(all, (key, value) => (key === 'functions' ? undefined : value)));
    return;
  }
  for (const [name, { functions, ...numbers }] of Object.entries(results)) {
    console.log(`${name}: ${JSON.stringify(numbers)}`);
    for (const each of functions) console.log(`  ${each}`);
  }
  console.log(`allocatedBytes: ${allocatedBytes}`);
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
  const entered = new Map();
  const look = () => {
    inspector.post('Profiler.takePreciseCoverage', (_, { result }) => {
      for (const { url, functions } of result) {
        if (!url.startsWith(OURS)) continue;
        for (const { functionName, ranges } of functions) {
          const [{ count: calls, startOffset }] = ranges;
          // The first of a file is its top level.
          if (calls === 0 || startOffset === 0) continue;
          const file = url.slice(OURS.length);
          entered.set(`${file} ${functionName || '(arrow)'} at ${startOffset}`, { file, functionName });
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
  const all = [...entered.values()];
  const others = all.filter(({ functionName }) => !ACCESSOR_OR_INITIALIZER.test(functionName));
  return {
    toWire,
    toTask,
    altogether,
    files: filesOf(all),
    withoutAccessorsAndInitializers: { altogether: others.length, files: filesOf(others) },
    functions: [...entered.keys()].sort(),
  };
}

function filesOf(functions) {
  return new Set(functions.map(({ file }) => file)).size;
}
