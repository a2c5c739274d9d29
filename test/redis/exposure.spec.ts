import { createClient, createCluster, createSentinel } from 'redis';
import { Cluster, Redis } from 'ioredis';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { textOf } from '../../lib/provider-kit/secrets.js';
import { exposedBy, PASSWORDS, WORDS } from '../exposure.js';
import { startRedisServer } from '../servers/redis-server.mjs';

/** With a user or without, no URL, no scheme, and with a query. */
const ADDRESSES = PASSWORDS.flatMap((password) => [
  `redis://user:${password}@127.0.0.1:1/0`,
  `redis://:${password}@127.0.0.1:1`,
  `redis://user:${password}@[127.0.0.1:1`,
  `user:${password}@127.0.0.1:1`,
  `redis://127.0.0.1:1?username=user&password=${password}`,
]);

/** Every place of the options that takes an address. */
const PLACES: readonly (readonly [string, (url: string) => RedisLockProviderOptions])[] = [
  ['url', (url) => ({ url })],
  ['cluster of ioredis', (url) => ({ cluster: [url] })],
  ['cluster of node-redis', (url) => ({ cluster: [url], options: { defaults: {} } })],
  ['options of ioredis', (url) => ({ options: { host: url } })],
  ['options of node-redis', (url) => ({ options: { socket: {}, url } })],
  ['Sentinels of node-redis', (url) => ({ options: { name: 'main', sentinelRootNodes: [{ host: url, port: 1 }] } })],
  ['a client of ioredis', (url) => ({ client: new Redis(url, { lazyConnect: true }) })],
  ['a Cluster of ioredis', (url) => ({ client: new Cluster([url], { lazyConnect: true }) })],
  ['a client of node-redis', (url) => ({ client: createClient({ url }) })],
  ['a Cluster of node-redis', (url) => ({ client: createCluster({ rootNodes: [{ url }] }) })],
  [
    'a Sentinel client of node-redis',
    (url) => ({ client: createSentinel({ name: 'main', sentinelRootNodes: [{ host: url, port: 1 }] }) }),
  ],
];

it.each(PLACES)(
  'a password in an address is shown nowhere: %s',
  async (_, place) => {
    const options = ADDRESSES.flatMap((address) => optionsIfValid(() => place(address)));
    expect(await exposedBy(options.map((each) => () => new RedisLockProvider(each)))).not.toMatch(WORDS);
  },
  60_000,
);

it('a password in an address of Redlock is shown nowhere', async () => {
  const providers = PASSWORDS.map((password) => {
    const nodes = [1, 2, 3].map((port) => ({ url: `redis://user:${password}@127.0.0.1:${port}` }));
    return () => new RedlockLockProvider({ nodes, maxLease: '1m' });
  });
  expect(await exposedBy(providers)).not.toMatch(WORDS);
}, 60_000);

/** The clients of the application itself refuse some addresses; it gets their errors, and this package nothing. */
function optionsIfValid(make: () => RedisLockProviderOptions): RedisLockProviderOptions[] {
  try {
    return [make()];
  } catch {
    return [];
  }
}

it.each([
  ['ioredis', (port: number) => ({ options: { port, password: 'hunter', username: 'tiger' } })],
  ['node-redis', (port: number) => ({ options: { socket: { port }, password: 'hunter', username: 'tiger' } })],
])('a server that repeats what it does not know shows no password: %s', async (_, options) => {
  const server = await startRedisServer({ args: ['--rename-command', 'AUTH', '', '--rename-command', 'HELLO', ''] });
  const text = await exposedBy([() => new RedisLockProvider(options(server.port))]);
  await server.stop();
  expect(text).not.toMatch(WORDS);
});

it.each([
  ['ioredis', (url: string) => ({ url })],
  ['node-redis', (url: string) => ({ options: { socket: {}, url } })],
])('a server that refuses commands shows no id of a holder: %s', async (_, options) => {
  const server = await startRedisServer();
  const seen: string[] = [];
  const see = (something: unknown) => {
    seen.push(textOf(something));
  };
  const logger = { debug: see, warn: see, error: see };
  const locks = new LockManager({ providers: { main: new RedisLockProvider(options(server.url)) }, logger });
  locks.events.on('unavailable', see);
  await locks.start();
  const lock = await locks.acquire('order');
  const admin = new Redis(server.url);
  await admin.call('ACL', 'SETUSER', 'default', '-evalsha', '-eval');
  await locks.acquire('other', { wait: 0 }).then(see, see);
  await lock.extend().then(see, see);
  await lock.release().then(see);
  await locks.acquire('order', { wait: 0 }).then(see, see);
  await locks.stop();
  admin.disconnect();
  await server.stop();
  expect(seen.join('\n')).toMatch(/NOPERM/);
  expect(seen.join('\n')).not.toMatch(/[0-9a-f]{32}(?![0-9a-f])/);
  expect(seen.join('\n')).not.toContain(lock.holder.slice(12));
});
