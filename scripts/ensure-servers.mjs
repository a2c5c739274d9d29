import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

// The tests freeze, flush, fill, and kill their servers, so they always start their own, in temporary folders on free
// ports. They never touch a server that is already running, whatever the environment names.
const SERVERS = [
  { program: 'redis-server', package: 'redis-server' },
  { program: 'mariadbd', others: ['mysqld'], package: 'mariadb-server' },
  // Debian keeps these programs off the PATH.
  { program: 'postgres', file: '/usr/lib/postgresql', package: 'postgresql' },
  { program: 'java', package: 'default-jre-headless' },
  // The server itself: the package `zookeeper` only adds a service to it.
  { program: 'zookeeper', file: '/usr/share/java/zookeeper.jar', package: 'libzookeeper-java' },
  { program: 'pgbouncer', package: 'pgbouncer' },
  { program: 'memcached', package: 'memcached' },
  // Compiles the clock that the tests inject into Redis, to step or stop it.
  { program: 'cc', package: 'gcc libc6-dev' },
  // Opens the sample shop's page. Only that test needs it.
  { program: 'chromium', file: '/usr/bin/google-chrome', package: 'chromium', isOptional: true },
  // Evaluates the dashboard and the alert rules. Only those tests need it.
  { program: 'prometheus', package: 'prometheus', isOptional: true },
  // For consumers whose lock is busy and that acknowledge messages themselves. Only those tests need it.
  { program: 'rabbitmq-server', package: 'rabbitmq-server', isOptional: true },
  // For locks of other languages, which compete with ours in ZooKeeper. Only those tests need it.
  { program: 'javac', package: 'default-jdk-headless', isOptional: true },
  {
    program: 'curator',
    file: '/usr/share/java/curator-recipes.jar',
    package: 'libcurator-recipes-java',
    isOptional: true,
  },
  { program: 'kazoo', file: '/usr/lib/python3/dist-packages/kazoo', package: 'python3-kazoo', isOptional: true },
];

/** The servers without which tests fail. Only `npm run test:all` has tests that use the others. */
export const NEEDED = SERVERS.filter(({ isOptional }) => !isOptional).map(({ program }) => program);

/** Installs missing servers if possible, and otherwise prints how to. Exits if a required one is missing. */
export function ensureServers(programs = SERVERS.map(({ program }) => program)) {
  const missing = SERVERS.filter((server) => programs.includes(server.program) && !isInstalled(server));
  const needed = missing.filter(({ isOptional }) => !isOptional);
  const optional = missing.filter(({ isOptional }) => isOptional);
  if (needed.length > 0 && !install(needed)) process.exit(1);
  if (optional.length > 0 && !install(optional)) console.error('NOT RUN: the tests that need them.');
}

function install(missing) {
  const command = `apt-get update && apt-get install -y ${missing.map((each) => each.package).join(' ')}`;
  const names = missing.map(({ program }) => program).join(', ');
  if (process.getuid?.() !== 0 || !isInstalled({ program: 'apt-get' })) {
    console.error(`Missing: ${names}.\nOn Debian or Ubuntu:  sudo sh -c '${command}'`);
    return false;
  }
  console.log(`Missing: ${names}. Installing: ${command}`);
  // The package would start its own server on the default port, but the tests start theirs on free ports.
  const environment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  return spawnSync('sh', ['-c', `${command} >/dev/null`], { stdio: 'inherit', env: environment }).status === 0;
}

function isInstalled({ program, others = [], file }) {
  if (file !== undefined && existsSync(file)) return true;
  // Only root has the folder of servers on its PATH.
  return `${process.env.PATH ?? ''}${delimiter}/usr/sbin`
    .split(delimiter)
    .some((folder) => folder !== '' && [program, ...others].some((name) => existsSync(join(folder, name))));
}
