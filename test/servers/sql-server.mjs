// Plain JavaScript, because scripts use it before anything is built. The types are in sql-server.d.mts.
import { execFile } from 'node:child_process';
import { chmod, chown, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { end, freePort, installed, launch, programOf, ready } from './server-process.mjs';

const run = promisify(execFile);

/**
 * Starts MySQL, or MariaDB if MySQL isn't installed, on a free loopback port in a temporary folder, with a database
 * `test`. The URL's protocol shows which one it is.
 */
export function startMySqlOrMariaDb(settings) {
  return hasMySql() ? startMySql(settings) : startMariaDb(settings);
}

/** Starts MariaDB on a free loopback port in a temporary folder, with a database `test`. */
export async function startMariaDb({ options = [], place } = {}) {
  const program = programOf('mariadbd');
  const settings = ['--debug-no-sync', '--innodb-flush-method=nosync', ...options];
  const accounts = ['--auth-root-authentication-method=normal', '--skip-name-resolve'];
  const install = (common) => run(programOf('mariadb-install-db'), [...common, ...accounts]);
  return startMySqlFamily('mariadb', program, settings, install, place);
}

async function startMySql({ options = [], place } = {}) {
  const program = mysqlProgram();
  // The X protocol would open a port that may be taken.
  const settings = ['--mysqlx=OFF', '--secure-file-priv=', '--innodb-flush-method=O_DIRECT_NO_FSYNC', ...options];
  const install = async (common, folder) => {
    const file = join(folder, 'first.sql');
    await writeFile(file, FIRST_OF_MYSQL);
    await run(program, [...common, '--initialize-insecure', '--innodb-redo-log-capacity=16M', `--init-file=${file}`]);
  };
  return startMySqlFamily('mysql', program, settings, install, place);
}

// A new MySQL has an account only for the socket. MariaDB has both.
const FIRST_OF_MYSQL = `CREATE DATABASE test;
CREATE USER root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
`;

/**
 * @param options The server's options. @param install Creates the data folder. @param place Where to listen, if not on
 * a free port.
 */
async function startMySqlFamily(protocol, program, options, install, place) {
  const folder = await mkdtemp(join(tmpdir(), `lock-${protocol}-`));
  const data = join(folder, 'data');
  // mysqld and mariadbd refuse to run as root without this option.
  const user = process.getuid?.() === 0 ? ['--user=root'] : [];
  const root = program.startsWith('/') ? [`--basedir=${dirname(dirname(program))}`] : [];
  // A starting server removes the temporary tables it finds. With a shared folder, these could belong to a server that
  // is being set up.
  const common = ['--no-defaults', ...user, ...root, `--datadir=${data}`, `--tmpdir=${folder}`];
  await copyOrMake(protocol, data, () => install(common, folder));
  const { address, port } = place ?? { address: '127.0.0.1', port: await freePort() };
  const start = () =>
    launch(program, [
      ...[...common, `--port=${port}`, `--bind-address=${address}`, `--socket=${join(folder, 's.sock')}`],
      ...[`--pid-file=${join(folder, 'pid')}`, '--skip-log-bin', '--skip-name-resolve', '--max-connections=1000'],
      // Durable except for power loss: a test kills the process, never the machine. A busy disk would otherwise stall
      // the server for seconds.
      ...['--innodb-buffer-pool-size=64M', '--innodb-flush-log-at-trx-commit=2', ...options],
    ]);
  // The server sends its greeting first: the protocol number, then its version.
  const greeting = { hello: '', answer: /^....\n\d+\./s, address };
  return server({ folder, port, url: `${protocol}://root@${address}:${port}/test`, start, greeting, quit: 'SIGKILL' });
}

/** Whether `startMySqlOrMariaDb` starts MySQL. */
export const hasMySql = () => mysqlProgram() !== undefined;

/** Returns MySQL's server, or undefined if there is none or `mysqld` is a link to MariaDB's. */
function mysqlProgram() {
  const found = programOf('mysqld');
  const path = found.startsWith('/') ? found : '/usr/sbin/mysqld';
  return existsSync(path) && basename(realpathSync(path)) !== 'mariadbd' ? path : undefined;
}

/** Starts MariaDB as the only node of a Galera cluster. */
export async function startGaleraNode() {
  const [group, transfer] = [await freePort(), await freePort()];
  const provider = `gmcast.listen_addr=tcp://127.0.0.1:${group};ist.recv_addr=127.0.0.1:${transfer}`;
  return startMariaDb({
    options: [
      ...[
        '--wsrep-on=ON',
        `--wsrep-provider=${installed('usr/lib/galera/libgalera_smm.so')}`,
        '--wsrep-cluster-address=gcomm://',
      ],
      ...[`--wsrep-provider-options=${provider}`, '--wsrep-node-address=127.0.0.1', '--binlog-format=ROW'],
      '--innodb-autoinc-lock-mode=2',
    ],
  });
}

/** Starts PgBouncer on a free loopback port, in front of this Postgres server. Pools by transaction by default. */
export async function startPgBouncer(port, mode = 'transaction') {
  const folder = await mkdtemp(join(tmpdir(), 'lock-pgbouncer-'));
  // PgBouncer refuses to run as root.
  const account = process.getuid?.() === 0 ? await accountOf('postgres') : undefined;
  if (account) await chown(folder, account.uid, account.gid);
  const own = await freePort();
  const settings = [
    ...['[databases]', `* = host=127.0.0.1 port=${port} user=postgres`, '[pgbouncer]', 'listen_addr = 127.0.0.1'],
    ...[`listen_port = ${own}`, 'unix_socket_dir =', 'auth_type = any', `pool_mode = ${mode}`],
    // In transaction mode, a small pool, so that one client's statements reach several server processes.
    ...(mode === 'transaction' ? ['default_pool_size = 3'] : []),
  ];
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(file, settings.join('\n'));
  const start = () => launch('pgbouncer', [file], { ...account, cwd: folder });
  const greeting = { hello: Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]), answer: /^[SN]/ };
  const url = `postgres://postgres@127.0.0.1:${own}/postgres`;
  return server({ folder, port: own, url, start, greeting, quit: 'SIGQUIT' });
}

/** Starts Postgres on a free loopback port in a temporary folder. */
export function startPostgres({ addresses } = {}) {
  const make = (data, options) =>
    copyOrMake('postgres', data, () =>
      run(
        join(postgresFolder(), 'initdb'),
        ['-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync', '-E', 'UTF8'],
        options,
      ),
    );
  return startPostgresIn(make, addresses);
}

/**
 * Starts a standby of this Postgres server and makes the primary wait for it on every COMMIT. It replicates from
 * `sourcePort`, for example a proxy that a test can cut off.
 */
export async function startPostgresStandby(primary, { sourcePort = primary.port, addresses } = {}) {
  const source = ['-h', '127.0.0.1', '-p', String(sourcePort), '-U', 'postgres'];
  const make = (data, options) =>
    run(
      join(postgresFolder(), 'pg_basebackup'),
      [...source, '-d', 'application_name=standby', '-D', data, '-R', '-c', 'fast', '--no-sync'],
      options,
    );
  const standby = await startPostgresIn(make, addresses);
  await psql(primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'");
  await psql(primary, 'SELECT pg_reload_conf()');
  while ((await psql(primary, 'SELECT sync_state FROM pg_stat_replication')) !== 'sync') await sleep(50);
  return Object.assign(standby, {
    async promote() {
      await psql(standby, 'SELECT pg_promote()');
    },
  });
}

async function psql({ url }, statement) {
  const { stdout } = await run(join(postgresFolder(), 'psql'), [url, '-XAtqc', statement]);
  return stdout.trim();
}

/** @param make Creates the data folder. */
async function startPostgresIn(make, addresses = ['127.0.0.1']) {
  const folder = await mkdtemp(join(tmpdir(), 'lock-postgres-'));
  const data = join(folder, 'data');
  // Postgres refuses to run as root.
  const account = process.getuid?.() === 0 ? await accountOf('postgres') : undefined;
  if (account) await chown(folder, account.uid, account.gid);
  await chmod(folder, 0o700);
  const options = { ...account, cwd: folder };
  await make(data, options);
  const port = await freePort();
  const start = () =>
    launch(
      join(postgresFolder(), 'postgres'),
      [
        ...['-D', data, '-p', String(port), '-h', addresses.join(), '-k', folder],
        ...['-c', 'fsync=off', '-c', 'max_connections=400', '-c', 'shared_buffers=64MB'],
      ],
      options,
    );
  // A complete login: a TLS request alone is answered while the server still recovers from a crash and rejects
  // connections.
  const login = Buffer.from('\0\x03\0\0user\0postgres\0database\0postgres\0\0');
  const greeting = { hello: Buffer.concat([Buffer.from([0, 0, 0, 4 + login.length]), login]), answer: /^R/ };
  // SIGQUIT ends the server and all its processes immediately, as a crash would.
  return server({
    folder,
    port,
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    start,
    greeting,
    quit: 'SIGQUIT',
  });
}

/**
 * Creates a server's data folder, or copies one that an earlier server of this run created, because creating one takes
 * seconds of CPU time. LOCK_TESTS_TEMPLATES names the run's template folder.
 */
async function copyOrMake(name, data, make) {
  const templates = process.env.LOCK_TESTS_TEMPLATES;
  const template = templates && join(templates, name);
  if (template && existsSync(template)) {
    await run('cp', ['-a', template, data]);
    return;
  }
  await make();
  if (!template) return;
  const own = `${template}-${process.pid}`;
  await run('cp', ['-a', data, own]);
  // Another process may have been first. Both templates are the same.
  await rename(own, template).catch(() => rm(own, { recursive: true, force: true }));
}

/** Debian's folder for programs that aren't on the PATH. */
function postgresFolder() {
  const root = installed('usr/lib/postgresql');
  try {
    const [newest] = readdirSync(root).sort((a, b) => Number(b) - Number(a));
    return newest === undefined ? '' : join(root, newest, 'bin');
  } catch {
    return '';
  }
}

async function accountOf(name) {
  const [uid, gid] = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, name])));
  return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
}

/** Returns the child processes. Linux only. */
function childrenOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

function send(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch (error) {
    // The process ended meanwhile.
    if (error.code !== 'ESRCH') throw error;
  }
}

async function server({ folder, port, url, start, greeting, quit }) {
  let child = start();
  await ready(child, port, greeting);
  return {
    port,
    folder,
    url,
    get pid() {
      return child.process.pid;
    },
    /** The end of the server's log. */
    get output() {
      return child.output;
    },
    /**
     * Sends a signal, such as SIGSTOP or SIGCONT, to all processes of the server. Postgres' connection processes are
     * its children.
     */
    signal(name) {
      const { pid } = child.process;
      // The main process forks new ones, so it stops first and continues last.
      if (name !== 'SIGCONT') send(pid, name);
      for (const served of childrenOf(pid)) send(served, name);
      if (name === 'SIGCONT') send(pid, name);
    },
    /** Kills the server and restarts it with the same port and folder. */
    async crash({ downFor = 0 } = {}) {
      await end(child.process, quit);
      await sleep(downFor);
      child = start();
      await ready(child, port, greeting);
    },
    async stop() {
      await end(child.process, quit);
      await rm(folder, { recursive: true, force: true });
    },
  };
}
