// The candidates. Each creates a function that acquires the lock `key` and resolves to a function that releases it.
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { KeyLayout } from '../../dist/providers/redis/key-layout.js';
import { LOCK_SCRIPT } from '../../dist/providers/redis/lua/lock-script.js';
import { encodeQueueingAcquire, encodeRelease } from '../../dist/providers/redis/wire.js';
import { builds, load, OURS } from '../builds.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';

const LEASE = 10_000;
const RAW = 'raw ioredis';
const SCRIPTS = 'the same scripts, bare ioredis';

/** A cycle of this library that ends when its release has been sent. */
const SENT = `${OURS}, release: 'sent'`;
/** This library with a node-redis client. */
const NODE_REDIS = `${OURS}, node-redis`;

export { NODE_REDIS, OURS, RAW, SCRIPTS, SENT };

/** The raw client: SET NX PX and compare-and-delete, without tokens and without a queue. It polls while it waits. */
function raw(client) {
  client.defineCommand('compareAndDelete', {
    numberOfKeys: 1,
    lua: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
  });
  return async (key) => {
    const name = `raw:${key}`;
    const holder = randomUUID();
    while ((await client.set(name, holder, 'PX', LEASE, 'NX')) === null)
      await new Promise((done) => setTimeout(done, 10));
    return () => client.compareAndDelete(name, holder);
  };
}

/**
 * Only the commands that this library sends for a free lock: the cost of its scripts without its code.
 *
 * @param terms the lock's mode and its share of a limit
 */
export async function scripts(client, terms = { mode: 'exclusive' }) {
  const layout = new KeyLayout('scripts');
  const process = '0123456789ab';
  const run = (key, operation) =>
    client.evalsha(LOCK_SCRIPT.sha, 2, layout.counter, layout.lockOf(key), process, ...operation);
  await client.script('LOAD', LOCK_SCRIPT.text);
  let count = 0;
  return async (key) => {
    const request = { ...terms, lease: LEASE, minHold: 0, id: (count += 1).toString(16).padStart(32, '0') };
    while (/^q/i.test(await run(key, encodeQueueingAcquire(request, 1, 0, false))))
      await new Promise((done) => setTimeout(done, 10));
    return () => run(key, encodeRelease(request, 0, false));
  };
}

/** A build of this library. Only this candidate accepts options for a call. */
async function ours(client, build) {
  const { LockManager, RedisLockProvider, namespace } = await load(build, 'redis');
  const locks = new LockManager({ providers: { redis: new RedisLockProvider({ client }) }, namespace });
  await locks.start();
  const acquire = async (key, options) => {
    const lock = await locks.acquire(key, { wait: '60s', lease: LEASE, ...options });
    return () => lock.release();
  };
  const sent = async (key) => {
    const lock = await locks.acquire(key, { wait: '60s', lease: LEASE, release: 'sent' });
    return () => lock[Symbol.asyncDispose]();
  };
  return Object.assign(acquire, { sent, stop: () => locks.stop() });
}

/** The candidate `name` on the server at `port`, with its own client. */
export async function candidate(name, port) {
  const client = new Redis({ port, lazyConnect: true });
  await client.connect();
  const own = Object.fromEntries(builds.map((build) => [build, () => ours(client, build)]));
  const nodeRedis = () => ours(createClient({ url: `redis://127.0.0.1:${port}` }), OURS);
  const sent = async () => (await ours(client, OURS)).sent;
  const makers = { [RAW]: raw, [SCRIPTS]: (own) => scripts(own), [SENT]: sent, [NODE_REDIS]: nodeRedis, ...own };
  const make = makers[name] ?? (await peers())[name];
  const acquire = await make(client, port);
  return {
    acquire,
    stop: async () => {
      await acquire.stop?.();
      client.disconnect();
    },
  };
}

/** The other libraries, by name. */
export async function peers() {
  return ensurePeers() ? (await import('../peers/adapters.mjs')).peers : {};
}
