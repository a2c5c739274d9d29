// Plain JavaScript, because the scripts that use it run before anything is built. Its types stand in sql-server.d.mts.
import { execFile } from 'node:child_process';
import { chmod, chown, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { end, freePort, launch, ready } from './server-process.mjs';

const run = promisify(execFile);

/** Starts a MariaDB of its own on a free loopback port, in a temporary folder, with a database `test`. */
export async function startMariaDb({ options = [] } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'lock-mariadb-'));
  const data = join(folder, 'data');
  // It refuses to be root unless it is told to be.
  const user = process.getuid?.() === 0 ? ['--user=root'] : [];
  // Durable but for a loss of power: a test crashes the program, never the machine. A disk that is busy would stop it for seconds.
  const noSync = ['--debug-no-sync', '--innodb-flush-method=nosync', '--innodb-flush-log-at-trx-commit=2'];
  // A server that starts removes the temporary tables that it finds: beneath a common folder also those of one that is being set up.
  const common = ['--no-defaults', ...user, `--datadir=${data}`, `--tmpdir=${folder}`, ...noSync];
  const install = () =>
    run('mariadb-install-db', [...common, '--auth-root-authentication-method=normal', '--skip-name-resolve']);
  await copyOrMake('mariadb', data, install);
  const port = await freePort();
  const start = () =>
    launch('mariadbd', [
      ...[...common, `--port=${port}`, '--bind-address=127.0.0.1', `--socket=${join(folder, 's.sock')}`],
      ...[`--pid-file=${join(folder, 'pid')}`, '--skip-log-bin', '--skip-name-resolve', '--max-connections=1000'],
      ...['--innodb-buffer-pool-size=64M', ...options],
    ]);
  // The server greets whoever connects.
  const greeting = { hello: '', answer: /MariaDB/ };
  return server({ folder, port, url: `mysql://root@127.0.0.1:${port}/test`, start, greeting, quit: 'SIGKILL' });
}

/** Starts a MariaDB as the only node of a Galera cluster. */
export async function startGaleraNode() {
  const [group, transfer] = [await freePort(), await freePort()];
  const provider = `gmcast.listen_addr=tcp://127.0.0.1:${group};ist.recv_addr=127.0.0.1:${transfer}`;
  return startMariaDb({
    options: [
      ...['--wsrep-on=ON', '--wsrep-provider=/usr/lib/galera/libgalera_smm.so', '--wsrep-cluster-address=gcomm://'],
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
  ];
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(file, settings.join('\n'));
  const start = () => launch('pgbouncer', [file], { ...account, cwd: folder });
  const greeting = { hello: Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]), answer: /^[SN]/ };
  const url = `postgres://postgres@127.0.0.1:${own}/postgres`;
  return server({ folder, port: own, url, start, greeting, quit: 'SIGQUIT' });
}

/** Starts a Postgres of its own on a free loopback port, in a temporary folder. */
export async function startPostgres() {
  const folder = await mkdtemp(join(tmpdir(), 'lock-postgres-'));
  const data = join(folder, 'data');
  // It refuses to be root at all.
  const account = process.getuid?.() === 0 ? await accountOf('postgres') : undefined;
  if (account) await chown(folder, account.uid, account.gid);
  await chmod(folder, 0o700);
  const bin = postgresFolder();
  const options = { ...account, cwd: folder };
  const make = () =>
    run(join(bin, 'initdb'), ['-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync', '-E', 'UTF8'], options);
  await copyOrMake('postgres', data, make);
  const port = await freePort();
  const start = () =>
    launch(
      join(bin, 'postgres'),
      [
        ...['-D', data, '-p', String(port), '-h', '127.0.0.1', '-k', folder],
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
  const root = '/usr/lib/postgresql';
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
