import process from 'node:process';
import { Redis } from 'ioredis';
import { startRedisServer } from '../test/servers/redis-server.mjs';
import { root } from './ensure-installed.mjs';

/*
 * The way of one call: which of our functions lie between `LockService.withLock` and ioredis' `sendCommand`, for an uncontended exclusive
 * lock on one Redis. Read from the stacks at the two places where a call waits for the end of a tick and where the command leaves.
 * Run `npm run build` first.
 */
const { LockManager, LockService } = await import(`${root}/dist/index.js`);
const { RedisLockProvider } = await import(`${root}/dist/providers/redis/index.js`);
Error.stackTraceLimit = 100;

const server = await startRedisServer();
const client = new Redis(server.port, { lazyConnect: true });
const manager = new LockManager({ providers: { redis: new RedisLockProvider({ client }) } });
await manager.start();
const locks = new LockService(manager);
// The first lock loads the script.
for (let round = 0; round < 20; round += 1) await locks.withLock('warm', () => undefined);

const path = [];
const { sendCommand } = Redis.prototype;
const { nextTick } = process;
process.nextTick = function (...args) {
  path.push(...framesOf(new Error('here')));
  return nextTick.apply(process, args);
};
// What is imported from node:process by name follows.
(await import('node:module')).syncBuiltinESMExports();
Redis.prototype.sendCommand = function (command, ...rest) {
  if (command.name === 'evalsha' && path.at(-1) !== 'sent') path.push(...framesOf(new Error('here')), 'sent');
  return sendCommand.call(this, command, ...rest);
};
path.length = 0;
await locks.withLock('order:42', () => undefined);
Redis.prototype.sendCommand = sendCommand;
process.nextTick = nextTick;

const hops = [...new Set(path.slice(0, path.indexOf('sent')))];
console.log(`${hops.length} functions from LockService.withLock to ioredis:`);
for (const hop of hops) console.log(`  ${hop}`);
await manager.stop();
client.disconnect();
await server.stop();

/** Our functions on a stack, the outermost first. */
function framesOf({ stack }) {
  return stack
    .split('\n')
    .map((line) => /at (?:async )?(?:(.*?) \()?file:\/\/.*\/dist\/([^:]+):(\d+)/.exec(line))
    .filter((frame) => frame !== null)
    .map(
      ([, name = '(arrow)', file, line]) =>
        `${file} ${name === '(arrow)' || name === '<anonymous>' ? `(arrow at ${line})` : name}`,
    )
    .reverse();
}
