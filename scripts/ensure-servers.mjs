import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** What the tests start by themselves: a running server named by its URL wins, then a program on the PATH. */
const SERVERS = [
  { url: 'REDIS_URL', program: 'redis-server', package: 'redis-server' },
  { url: 'MYSQL_URL', program: 'mariadbd', package: 'mariadb-server' },
  { url: 'POSTGRES_URL', program: 'postgres', package: 'postgresql' },
];

/** Where Debian keeps the programs of Postgres: not on the PATH. */
const POSTGRES = '/usr/lib/postgresql';

/** Installs the servers that are missing where that is possible, and otherwise says how, and ends. */
export function ensureServers(programs = SERVERS.map(({ program }) => program)) {
  const wanted = SERVERS.filter(({ program }) => programs.includes(program));
  const missing = wanted.filter(({ url, program }) => !process.env[url] && !onPath(program));
  if (missing.length === 0) return;
  const packages = missing.map((server) => server.package);
  const command = `apt-get update && apt-get install -y ${packages.join(' ')}`;
  const names = missing.map(({ url, program }) => `${program} (or ${url})`).join(', ');
  if (process.getuid?.() !== 0 || !onPath('apt-get')) {
    console.error(`The tests need ${names}.\nOn Debian or Ubuntu:  sudo sh -c '${command}'`);
    process.exit(1);
  }
  console.log(`The tests need ${names}. Installing: ${command}`);
  // The package would start a server of its own on the default port; the tests start theirs on free ports.
  const environment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const { status } = spawnSync('sh', ['-c', `${command} >/dev/null`], { stdio: 'inherit', env: environment });
  if (status !== 0) process.exit(status ?? 1);
}

function onPath(program) {
  if (program === 'postgres' && existsSync(POSTGRES)) return true;
  // Root alone has the folder of servers on its PATH.
  return `${process.env.PATH ?? ''}${delimiter}/usr/sbin`
    .split(delimiter)
    .some((folder) => folder !== '' && existsSync(join(folder, program)));
}
