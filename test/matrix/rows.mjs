// The servers and runtimes that `npm run test:servers` tests, each with the Debian suite that contains it.
import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { root } from '../../scripts/ensure-installed.mjs';
import { unpacked } from './debian.mjs';

const run = promisify(execFile);

// Tests shared by several providers. They also run with the other servers as installed.
const SHARED = 'test/providers/';
/**
 * Settings shared by all versions of a server: the packages to unpack, the specs to run, and the tests to skip because
 * they use another server.
 */
const REDIS = {
  specs: ['test/redis/', 'test/redlock/', 'test/contract/redis', 'test/contract/redlock', SHARED],
  topologies: 'one server, Sentinel, Cluster, Redlock',
};
const SERVERS = {
  Redis: { ...REDIS, packages: ['redis-server'], programs: ['usr/bin/redis-server'] },
  Valkey: { ...REDIS, packages: ['valkey-server'], programs: ['usr/bin/valkey-server'] },
  MySQL: {
    specs: ['test/sql/', 'test/typeorm/', 'test/contract/(sql|typeorm)', SHARED],
    without: /postgres/i,
    packages: ['mysql-server-core'],
    programs: ['usr/sbin/mysqld'],
  },
  MariaDB: {
    specs: ['test/sql/', 'test/typeorm/', 'test/contract/(sql|typeorm)', SHARED],
    without: /postgres/i,
    packages: ['mariadb-server'],
    programs: ['usr/sbin/mariadbd', 'usr/bin/my_print_defaults', 'usr/bin/resolveip'],
  },
  Postgres: {
    specs: ['test/sql/', 'test/typeorm/', 'test/contract/(sql|typeorm)', SHARED],
    without: /mysql|mariadb/i,
    packages: ['postgresql'],
    programs: ['usr/lib/postgresql/*/bin/postgres', 'usr/lib/postgresql/*/bin/initdb'],
  },
  ZooKeeper: {
    specs: ['test/zookeeper/', 'test/contract/zookeeper', SHARED],
    packages: ['libzookeeper-java', 'libslf4j-java'],
    programs: [],
  },
  memcached: {
    specs: ['test/memcached/', 'test/contract/memcached', SHARED],
    packages: ['memcached'],
    programs: ['usr/bin/memcached'],
  },
  // The tests that need no server, and the conformance kit on every backend.
  'Node.js': {
    specs: [
      'test/(?!redis|redlock|sql|typeorm|zookeeper|memcached|failover|combined|providers|sample|scripts|chaos|docs|long)',
    ],
  },
};

/**
 * @param refused The provider that must fail to boot.
 * @param leftOut Name patterns of tests that can't run on this server, with the reason.
 */
const row = (server, version, suite, { refused, leftOut } = {}) => ({
  server,
  version,
  suite,
  refused,
  leftOut,
  name: `${server.toLowerCase().replace('.', '')}-${version}`,
  ...SERVERS[server],
});

export const ROWS = [
  row('Redis', '6.0', 'bullseye', { refused: 'redis' }),
  row('Redis', '7.0', 'bookworm'),
  row('Redis', '8.0', 'trixie'),
  row('Valkey', '8.1', 'trixie'),
  row('Valkey', '9.1', 'sid', {
    leftOut: [{ tests: /the model of Redis/, reason: 'its time goes on while the test has stopped its clock' }],
  }),
  row('MySQL', '9.7', 'sid'),
  row('MariaDB', '10.5', 'bullseye', { refused: 'mysql' }),
  row('MariaDB', '10.11', 'bookworm'),
  row('MariaDB', '11.8', 'trixie'),
  row('Postgres', '13', 'bullseye', {
    leftOut: [
      {
        tests:
          /advisory|a read-only Postgres database|compare-and-set store on postgres (compares|fails|keeps values|writers|writes)/i,
        reason: 'advisory locks need Postgres 14',
      },
    ],
  }),
  row('Postgres', '15', 'bookworm'),
  row('Postgres', '17', 'trixie'),
  row('Postgres', '18', 'sid'),
  row('ZooKeeper', '3.4', 'bullseye', {
    leftOut: [
      { tests: /^The same lock for Nest, Java and Python/i, reason: 'Curator 5 needs ZooKeeper 3.5' },
      { tests: /^ZooKeeperLockProvider over TLS/i, reason: 'TLS needs ZooKeeper 3.5' },
      {
        tests: /^a connection that ZooKeeper refuses .* only local sessions/i,
        reason: 'local sessions need ZooKeeper 3.5',
      },
      {
        tests: /^a connection that ZooKeeper refuses .* requires SASL/i,
        reason: 'demanding SASL needs ZooKeeper 3.6',
      },
      {
        // On 3.4, a follower that was partitioned from its leader isn't back after a minute, so what these tests start
        // on it has no quorum.
        tests:
          /^three servers, some of which fall silent (holders on a follower|limited holders|the compare-and-set|a holder whose process paused)/i,
        reason: 'a follower of 3.4 that was cut off does not join its leader again within a minute',
      },
    ],
  }),
  row('ZooKeeper', '3.8', 'bookworm'),
  row('ZooKeeper', '3.9', 'trixie'),
  row('memcached', '1.6.9', 'bullseye', { refused: 'memcached' }),
  row('memcached', '1.6.18', 'bookworm'),
  row('memcached', '1.6.45', 'sid'),
  row('Node.js', '20', undefined),
  row('Node.js', '22', undefined),
  row('Node.js', '24', undefined),
];

const CACHE = join(root, '.cache/servers');

/**
 * Returns a server's folder for LOCK_TEST_ROOT, and its full version. Unpacks the server unless the row's version is
 * already there.
 */
export async function rootOf(row) {
  const folder = join(CACHE, row.name);
  const isOfRow = (version) => `${version}.`.startsWith(`${row.version}.`);
  await unpacked(folder, row, async () => isOfRow(await versionIn(folder, row)));
  const version = await versionIn(folder, row);
  // Packages in sid change.
  if (!isOfRow(version)) console.log(`${row.suite} has ${row.server} ${version} now, no longer ${row.version}.`);
  return { folder, version };
}

/** Returns the full version of the server unpacked in `root`. */
async function versionIn(root, { server, programs }) {
  if (server === 'ZooKeeper') {
    const jars = await readdir(join(root, 'usr/share/java'));
    return jars.map((jar) => /^zookeeper-(\d[\d.]*)\.jar$/.exec(jar)?.[1]).find((version) => version !== undefined);
  }
  const [folder, name] = [programs[0].slice(0, programs[0].lastIndexOf('/')), programs[0].split('/').at(-1)];
  const path = folder.includes('*') ? await newest(root, folder) : folder;
  const { stdout } = await run(join(root, path, name), ['--version']);
  // Skips numbers in the path that the program prints.
  return /(?:v=|\s)(\d+(?:\.\d+)+)/.exec(stdout)[1];
}

async function newest(root, folder) {
  const [before, after] = folder.split('*');
  const names = await readdir(join(root, before));
  return join(before, names.sort((a, b) => Number(a) - Number(b)).at(-1), after);
}
