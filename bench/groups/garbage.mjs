// What garbage collection costs with the tables of `HolderTable`, compared with a `Map` in place of each, for 64 locks
// in flight on Redis. The server runs on core 0, the clients on core 1. Both take turns, each time in a new process,
// because the cost depends on the age of the tables.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { interleave, lasting, mapped } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { about, report, versionOf } from '../results.mjs';

const KINDS = { HolderTable: 'table', Map: 'map' };
const FLAGS = ['--single-threaded-gc', '--expose-gc'];
const program = fileURLToPath(new URL('../redis/garbage.mjs', import.meta.url));

const server = pinned(await startRedisServer());
const admin = new Redis(server.port);
about({
  versions: { redis: /redis_version:(\S+)/.exec(await admin.info('server'))[1], ioredis: versionOf('ioredis') },
  settings:
    'redis-server without persistence; the garbage collector has no threads of its own (--single-threaded-gc), and one full ' +
    'collection precedes the measurement',
});
admin.disconnect();

const candidates = Object.entries(KINDS).map(([name, kind]) => [name, () => run(kind)]);
const results = await interleave(Object.fromEntries(candidates), { rounds: 5, warmUp: 0, budget: Infinity });
for (const [part, words] of [
  ['collector', 'garbage collector'],
  ['all', 'client'],
]) {
  report({
    what: `64 callers on 64 keys: CPU time of a cycle, ${words}`,
    unit: 'µs a cycle',
    better: 'less',
    ours: 'HolderTable',
    base: 'Map',
    rounds: mapped(results, (result) => result[part]),
  });
}
await server.stop();

async function run(kind) {
  const args = [kind, server.port, lasting(8_000)].map(String);
  const [result] = await once(fork(program, args, { execArgv: FLAGS }), 'message');
  return result;
}
