// Plain JavaScript, because the scripts that use it run before anything is built. Its types stand in sql-server.d.mts.
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
 * Starts a MySQL of its own on a free loopback port, in a temporary folder, with a database `test`; a MariaDB, where there is no MySQL. The
 * protocol of its URL says which it is.
 */
export function startMySqlOrMariaDb(settings) {
  return hasMySql() ? startMySql(settings) : startMariaDb(settings);
}

/** Starts a MariaDB of its own on a free loopback port, in a temporary folder, with a database `test`. */
export async function startMariaDb({ options = [], place } = {}) {
  const program = programOf('mariadbd');
  const settings = ['--debug-no-sync', '--innodb-flush-method=nosync', ...options];
  const accounts = ['--auth-root-authentication-method=normal', '--skip-name-resolve'];
  const install = (common) => run(programOf('mariadb-install-db'), [...common, ...accounts]);
  return startMySqlFamily('mariadb', program, settings, install, place);
}

async function startMySql({ options = [], place } = {}) {
  const program = mysqlProgram();
  // Its second protocol would take a port that is not ours.
  const settings = ['--mysqlx=OFF', '--secure-file-priv=', '--innodb-flush-method=O_DIRECT_NO_FSYNC', ...options];
  const install = async (common, folder) => {
    const file = join(folder, 'first.sql');
    await writeFile(file, FIRST_OF_MYSQL);
    await run(program, [...common, '--initialize-insecure', '--innodb-redo-log-capacity=16M', `--init-file=${file}`]);
  };
  return startMySqlFamily('mysql', program, settings, install, place);
}

// It begins with an account for the socket alone. MariaDB has both.
const FIRST_OF_MYSQL = `CREATE DATABASE test;
CREATE USER root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
`;

/** @param options of the server @param install makes its data folder @param place where it listens, if not on a free port */
async function startMySqlFamily(protocol, program, options, install, place) {
  const folder = await mkdtemp(join(tmpdir(), `lock-${protocol}-`));
  const data = join(folder, 'data');
  // It refuses to be root unless it is told to be.
  const user = process.getuid?.() === 0 ? ['--user=root'] : [];
  const root = program.startsWith('/') ? [`--basedir=${dirname(dirname(program))}`] : [];
  // A server that starts removes the temporary tables that it finds: beneath a common folder also those of one that is being set up.
  const common = ['--no-defaults', ...user, ...root, `--datadir=${data}`, `--tmpdir=${folder}`];
  await copyOrMake(protocol, data, () => install(common, folder));
  const { address, port } = place ?? { address: '127.0.0.1', port: await freePort() };
  const start = () =>
    launch(program, [
      ...[...common, `--port=${port}`, `--bind-address=${address}`, `--socket=${join(folder, 's.sock')}`],
      ...[`--pid-file=${join(folder, 'pid')}`, '--skip-log-bin', '--skip-name-resolve', '--max-connections=1000'],
      // Durable but for a loss of power: a test crashes the program, never the machine. A disk that is busy would stop it for seconds.
      ...['--innodb-buffer-pool-size=64M', '--innodb-flush-log-at-trx-commit=2', ...options],
    ]);
  // The server greets whoever connects: its version follows the number of the protocol.
  const greeting = { hello: '', answer: /^....\n\d+\./s, address };
  return server({ folder, port, url: `${protocol}://root@${address}:${port}/test`, start, greeting, quit: 'SIGKILL' });
}

/** Whether `startMySqlOrMariaDb` starts a MySQL. */
export const hasMySql = () => mysqlProgram() !== undefined;

/** MySQL's server; undefined where there is none, or where `mysqld` is another name of MariaDB's. */
function mysqlProgram() {
  const found = programOf('mysqld');
  const path = found.startsWith('/') ? found : '/usr/sbin/mysqld';
  return existsSync(path) && basename(realpathSync(path)) !== 'mariadbd' ? path : undefined;
}

/** Starts a MariaDB as the only node of a Galera cluster. */
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

/** Starts a PgBouncer on a free loopback port, which pools connections to this Postgres by transaction. */
export async function startPgBouncer(port, mode = 'transaction') {
  const folder = await mkdtemp(join(tmpdir(), 'lock-pgbouncer-'));
  // It refuses to be root.
  const account = process.getuid?.() === 0 ? await accountOf('postgres') : undefined;
  if (account) await chown(folder, account.uid, account.gid);
  const own = await freePort();
  const settings = [
    ...['[databases]', `* = host=127.0.0.1 port=${port} user=postgres`, '[pgbouncer]', 'listen_addr = 127.0.0.1'],
    ...[`listen_port = ${own}`, 'unix_socket_dir =', 'auth_type = any', `pool_mode = ${mode}`],
    // In transaction mode few, so that the statements of one client go to several server processes.
    ...(mode === 'transaction' ? ['default_pool_size = 3'] : []),
  ];
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(file, settings.join('\n'));
  const start = () => launch('pgbouncer', [file], { ...account, cwd: folder });
  const greeting = { hello: Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]), answer: /^[SN]/ };
  const url = `postgres://postgres@127.0.0.1:${own}/postgres`;
  return server({ folder, port: own, url, start, greeting, quit: 'SIGQUIT' });
}

/** Starts a Postgres of its own on a free loopback port, in a temporary folder. */
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
 * Starts a standby of this Postgres and makes the primary wait for it at every COMMIT. It replicates from `sourcePort`, for example the
 * port of a proxy that a test cuts off.
 */
export async function startPostgresStandby(primary, { sourcePort = primary.port } = {}) {
  const source = ['-h', '127.0.0.1', '-p', String(sourcePort), '-U', 'postgres'];
  const make = (data, options) =>
    run(
      join(postgresFolder(), 'pg_basebackup'),
      [...source, '-d', 'application_name=standby', '-D', data, '-R', '-c', 'fast', '--no-sync'],
      options,
    );
  const standby = await startPostgresIn(make);
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

/** @param make makes the data folder */
async function startPostgresIn(make, addresses = ['127.0.0.1']) {
  const folder = await mkdtemp(join(tmpdir(), 'lock-postgres-'));
  const data = join(folder, 'data');
  // It refuses to be root at all.
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
  // A whole log-in: the question for TLS alone is answered while the server still recovers from a crash, and refuses whoever comes.
  const login = Buffer.from('\0\x03\0\0user\0postgres\0database\0postgres\0\0');
  const greeting = { hello: Buffer.concat([Buffer.from([0, 0, 0, 4 + login.length]), login]), answer: /^R/ };
  // SIGQUIT ends it at once with all its processes, as a crash would.
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
 * Makes the data folder of a server, or copies that of an earlier server of this run: making one needs seconds of a core. A run
 * names the folder of its templates in LOCK_TESTS_TEMPLATES.
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
  // Another process may have been first; both templates are the same.
  await rename(own, template).catch(() => rm(own, { recursive: true, force: true }));
}

/** Where Debian keeps what is not on the PATH. */
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

/** Linux alone tells. */
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
    // It has ended meanwhile.
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
    /** The end of its log. */
    get output() {
      return child.output;
    },
    /** Sends a signal to all processes of the server, such as SIGSTOP and SIGCONT: those of Postgres that serve its connections are its children. */
    signal(name) {
      const { pid } = child.process;
      // The first makes new ones, so it stops before the others and goes on after them.
      if (name !== 'SIGCONT') send(pid, name);
      for (const served of childrenOf(pid)) send(served, name);
      if (name === 'SIGCONT') send(pid, name);
    },
    /** Ends the server without a farewell and starts it again with the same port and folder. */
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
