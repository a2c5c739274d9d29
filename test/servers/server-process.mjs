// Shared by all servers that tests start. Plain JavaScript like the server modules.
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

// A start takes one second, and many on a busy machine.
const READY_WITHIN = 50_000;
// Only root has the folder of servers on its PATH.
const ENVIRONMENT = { ...process.env, PATH: `${process.env.PATH}${delimiter}/usr/sbin` };
const running = new Set();

/**
 * Resolves a file of an installed server by its path relative to `/`, preferring LOCK_TEST_ROOT if it contains the
 * file. `npm run test:servers` unpacks other server versions there with all their dependencies.
 */
export function installed(path) {
  const other = process.env.LOCK_TEST_ROOT && join(process.env.LOCK_TEST_ROOT, path);
  return other && existsSync(other) ? other : join('/', path);
}

/** Returns the first of these programs found in LOCK_TEST_ROOT, or else the last name, for the PATH. */
export function programOf(...names) {
  const root = process.env.LOCK_TEST_ROOT;
  const paths = root ? names.flatMap((name) => ['usr/bin', 'usr/sbin'].map((folder) => join(root, folder, name))) : [];
  return paths.find((path) => existsSync(path)) ?? names.at(-1);
}

/** Starts a program, keeps the end of its output, and kills it at the latest when this process exits. */
export function launch(program, args, options = {}) {
  const child = spawn(...tiedToUs(program, args), { env: ENVIRONMENT, ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  const started = { process: child, output: '', failure: undefined };
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text) => (started.output = (started.output + text).slice(-4_000)));
    stream.unref();
  }
  child.unref();
  killAtExit(child);
  child.once('error', (error) => (started.failure = error));
  child.once('exit', (code, signal) => {
    started.failure ??= new Error(`${program} ended (${code ?? signal})`);
  });
  return started;
}

/** Kills the child at the latest when this process exits. A single listener, because Node warns about more than ten. */
export function killAtExit(child) {
  if (running.size === 0) process.once('exit', killAll);
  running.add(child);
  child.once('exit', () => {
    running.delete(child);
    if (running.size === 0) process.off('exit', killAll);
  });
}

function killAll() {
  for (const child of running) child.kill('SIGKILL');
}

/** Waits until the server started by `launch` is up on `port`, for at most `within` ms. */
export async function ready(child, port, greeting, within = READY_WITHIN) {
  for (const until = Date.now() + within; Date.now() < until; await sleep(20)) {
    if (child.failure) throw new Error(`The server cannot be started:\n${child.output}`, { cause: child.failure });
    if (await answers(port, greeting)) return;
  }
  throw new Error(`The server on port ${port} does not respond:\n${child.output}`);
}

/**
 * Whether the server on `port` of `address` is up: it's sent `hello`, and the start of its response must match
 * `answer`.
 */
export function answers(port, { hello, answer, address = '127.0.0.1' }) {
  return new Promise((resolve) => {
    const socket = connect(port, address, () => {
      if (hello !== '') socket.write(hello);
    });
    socket.once('data', (data) => finish(answer.test(data.toString('latin1'))));
    socket.once('error', () => finish(false));
    // A starting server may close the connection without a response, and then the timeout no longer fires.
    socket.once('close', () => finish(false));
    socket.setTimeout(500, () => finish(false));
    function finish(isUp) {
      socket.destroy();
      resolve(isUp);
    }
  });
}

const SETPRIV = '/usr/bin/setpriv';

/**
 * Returns the command that runs this program so that the kernel kills it whenever this process ends. Under Jest,
 * `process` is a copy that never emits 'exit', so a hook that times out would leave its server running. Linux only.
 */
export function tiedToUs(program, args) {
  return existsSync(SETPRIV) ? [SETPRIV, ['--pdeathsig', 'KILL', program, ...args]] : [program, args];
}

/** Ends the process if it's still running, and waits for its exit. */
export async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.ref();
  child.kill(signal);
  await ended;
}

// Below the ephemeral ports (on Linux, from 32,768). Otherwise, an outgoing connection could take the port between this
// check and the server's start, or while the server is down before a restart.
const [FIRST_PORT, PORTS] = [10_000, 22_000];

/**
 * Returns an unused port on the loopback interface that no other test process chooses while this one lives, because its
 * server is down at times. Random, so that concurrent test files don't collide.
 */
export async function freePort() {
  for (;;) {
    const port = FIRST_PORT + randomInt(PORTS);
    if ((await reserve(port)) && (await isFree(port))) return port;
  }
}

/** Reserves the UDP port of the same number, which no server uses. The system frees it however the process ends. */
async function reserve(port) {
  const reservation = createSocket('udp4').unref();
  reservation.bind({ port, address: '127.0.0.1', exclusive: true });
  try {
    await once(reservation, 'listening');
    return true;
  } catch (error) {
    if (error.code === 'EADDRINUSE') return false;
    throw error;
  }
}

async function isFree(port) {
  const listener = createServer().listen(port, '127.0.0.1');
  try {
    await once(listener, 'listening');
  } catch (error) {
    if (error.code === 'EADDRINUSE') return false;
    throw error;
  }
  listener.close();
  await once(listener, 'close');
  return true;
}
