import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ensureBuilt } from '../../scripts/build.mjs';
import { commandLine, refuse } from '../../scripts/command-line.mjs';
import { ensureInstalled, root } from '../../scripts/ensure-installed.mjs';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { flashSale } from './sale.mjs';
import { serveSalePage } from './sale-page.mjs';

const ORDERS = 500;
const ITEMS = 100;

// The servers that keep the locks and the stock: addresses from the environment, or servers that we start.
const SERVERS = {
  redis: {
    variable: 'REDIS_URL',
    programs: ['redis-server'],
    start: async () =>
      (await import('../../test/servers/redis-server.mjs')).startRedisServer({ args: ['--appendonly', 'yes'] }),
  },
  mysql: {
    variable: 'MYSQL_URL',
    // MySQL if it is installed. Debian has MariaDB.
    programs: ['mariadbd'],
    start: async () => (await import('../../test/servers/sql-server.mjs')).startMySqlOrMariaDb(),
  },
  postgres: {
    variable: 'POSTGRES_URL',
    programs: ['postgres'],
    start: async () => (await import('../../test/servers/sql-server.mjs')).startPostgres(),
  },
  zookeeper: {
    variable: 'ZOOKEEPER',
    programs: ['java', 'zookeeper'],
    start: async () => (await import('../../test/servers/zookeeper-server.mjs')).startZooKeeper({ forceSync: true }),
  },
};
// The servers that each provider of the shop needs.
const PROVIDERS = {
  memory: [],
  ...Object.fromEntries(Object.keys(SERVERS).map((name) => [name, [name]])),
  failover: ['redis', 'mysql'],
};

const USAGE = `usage: npm start [-- options]

  --provider redis  where the locks are stored: ${Object.keys(PROVIDERS).join(', ')}. Default: memory.
                    To use your own server, set ${Object.values(SERVERS)
                      .map(({ variable }) => variable)
                      .join(', ')}
  --instances 4     processes of the shop. Default 1
  --once            prints the result of one sale and exits; without it, a page then shows live sales`;

const { values: options } = commandLine(USAGE, {
  options: {
    once: { type: 'boolean', default: false },
    provider: { type: 'string', default: 'memory' },
    instances: { type: 'string', default: '1' },
  },
});
const instances = Number(options.instances);
if (!Object.hasOwn(PROVIDERS, options.provider))
  refuse(`--provider must be one of ${Object.keys(PROVIDERS).join(', ')}.`);
if (!Number.isInteger(instances) || instances < 1 || instances > 32)
  refuse('--instances must be a number from 1 to 32.');
if (options.provider === 'memory' && instances > 1) {
  refuse('Locks in memory do not exclude other processes. Add --provider redis to run several instances.');
}

ensureInstalled();
ensureBuilt();

const stops = [];
let ending = false;
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => void end(0));

const environment = { ...process.env, SHOP_BACKEND: options.provider, PORT: '0' };
const isFailover = options.provider === 'failover';
const servers = {};
for (const name of PROVIDERS[options.provider]) {
  const { variable } = SERVERS[name];
  // A failover kills a server, so it never uses one from the environment.
  if (environment[variable] !== undefined && !isFailover) continue;
  servers[name] = await startServer(SERVERS[name]);
  environment[variable] = servers[name].url ?? servers[name].connectString;
}
// Under the name mysql, the protocol of the address shows which server was started.
const mysql = servers.mysql?.url.startsWith('mariadb:') ? 'MariaDB' : 'MySQL';
const place = options.provider === 'mysql' && servers.mysql ? mysql : options.provider;
let shops = await startShops();
const urls = shops.map(({ url }) => url);

const processes = instances === 1 ? '1 process' : `${instances} processes`;
console.log(
  `\nFlash sale: ${ORDERS} concurrent orders for ${ITEMS} items over HTTP, ${processes}, locks in ${place}\n`,
);
const sale = { items: ITEMS, orders: ORDERS };
report('without a lock', await flashSale(urls, '/unguarded/orders', { ...sale, item: 'teapot' }));
const guarded = await flashSale(urls, '/orders', {
  ...sale,
  item: 'lamp',
  onAnswer(outcome, sold) {
    if (isFailover && outcome === 'sold' && sold === ITEMS / 2) servers.redis.signal('SIGKILL');
  },
});
report('@DistributedLock', guarded);
if (isFailover) {
  console.log(
    `\nRedis was killed when ${ITEMS / 2} items had been sold. Orders stalled for ${guarded.stoodStill.toFixed(1)} s, then continued with locks in ${mysql}.`,
  );
}

const kept = guarded.sold === ITEMS && guarded.failed === 0;
console.log(
  kept
    ? `\nThe guarded endpoint sold exactly ${ITEMS} items.`
    : `\nThe guarded endpoint did not sell exactly ${ITEMS} items.`,
);
if (options.once || !kept) await end(kept ? 0 : 1);

// For the page, the lease must be short enough to watch it end. With a single process, stopping it would stop all
// callers, so the page freezes a task instead, whose lock `maxHold` ends.
await Promise.all(shops.map(({ stop }) => stop()));
Object.assign(environment, { SHOP_LEASE: '2s', ...(instances === 1 && { SHOP_MAX_HOLD: '2s' }) });
shops = await startShops();
const page = await serveSalePage(shops, options.provider);
stops.push(() => page.stop());
console.log(`
See it live: ${page.url}
The shop itself is at ${shops.map(({ url }) => url).join(' ')}. Ctrl+C stops both.`);

async function startShops() {
  // The first shop creates the tables, if there are any.
  const first = await startShop();
  return [first, ...(await Promise.all(Array.from({ length: instances - 1 }, startShop)))];
}

async function startShop() {
  const child = fork(join(root, 'sample-app/dist/main.js'), { env: environment });
  const gone = once(child, 'exit');
  let isStopped = false;
  const stop = () => {
    isStopped = true;
    child.kill();
    return gone;
  };
  stops.push(stop);
  void gone.then(() => isStopped || ending || end(1));
  const [{ url }] = await once(child, 'message');
  return { url, child, stop };
}

async function startServer({ programs, start }) {
  ensureServers(programs);
  const started = await start();
  stops.push(() => started.stop());
  return started;
}

/** Ends the shops, then their servers. */
async function end(code) {
  ending = true;
  for (let stop = stops.pop(); stop; stop = stops.pop()) await stop();
  process.exit(code);
}

function report(endpoint, { sold, soldOut, failed, seconds }) {
  const verdict = sold > ITEMS ? `OVERSOLD by ${sold - ITEMS}` : sold === ITEMS ? 'exact' : `${ITEMS - sold} too few`;
  const cells = [endpoint.padEnd(18), `sold ${String(sold).padStart(3)} of ${ITEMS}`, verdict.padEnd(16)];
  cells.push(`sold out ${String(soldOut).padStart(3)}`, `failed ${failed}`, `${seconds.toFixed(2)} s`);
  console.log(`  ${cells.join('  ')}`);
}
