import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

// The tests freeze, flush, fill and kill the servers that they talk to, so these are always their own processes, in temporary
// folders on free ports. A server that somebody else runs is never touched, whatever the environment names.
const NEEDED = [
  { program: 'redis-server', package: 'redis-server' },
  { program: 'mariadbd', package: 'mariadb-server' },
  { program: 'postgres', package: 'postgresql' },
  { program: 'memcached', package: 'memcached' },
  // Compiles the clock that the tests put under Redis, to step it and to let it stand.
  { program: 'cc', package: 'gcc libc6-dev' },
];

/** Where Debian keeps the programs of Postgres: not on the PATH. */
const POSTGRES = '/usr/lib/postgresql';

/** Installs what is missing where that is possible, and otherwise says how, and ends. */
export function ensureServers(programs = NEEDED.map(({ program }) => program)) {
  const wanted = NEEDED.filter(({ program }) => programs.includes(program));
  const missing = wanted.filter(({ program }) => !onPath(program));
  if (missing.length === 0) return;
  const packages = missing.map((each) => each.package);
  const command = `apt-get update && apt-get install -y ${packages.join(' ')}`;
  const names = missing.map(({ program }) => program).join(', ');
  if (process.getuid?.() !== 0 || !onPath('apt-get')) {
    console.error(`Missing: ${names}.\nOn Debian or Ubuntu:  sudo sh -c '${command}'`);
    process.exit(1);
  }
  console.log(`Missing: ${names}. Installing: ${command}`);
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
