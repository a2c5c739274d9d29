// What every server that the tests start has in common. Plain JavaScript, as its users are.
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

// A start takes a second, and many on a busy machine.
const READY_WITHIN = 50_000;
// Root alone has the folder of servers on its PATH.
const ENVIRONMENT = { ...process.env, PATH: `${process.env.PATH}${delimiter}/usr/sbin` };
const running = new Set();

/**
 * A file of an installed server by its path below `/`: below LOCK_TEST_ROOT if that folder has it. There another version can stand with
 * everything that it needs, as `npm run test:servers` unpacks it.
 */
export function installed(path) {
  const other = process.env.LOCK_TEST_ROOT && join(process.env.LOCK_TEST_ROOT, path);
  return other && existsSync(other) ? other : join('/', path);
}

/** The first of these programs below LOCK_TEST_ROOT, or else the name of the last one, for the PATH. */
export function programOf(...names) {
  const root = process.env.LOCK_TEST_ROOT;
  const paths = root ? names.flatMap((name) => ['usr/bin', 'usr/sbin'].map((folder) => join(root, folder, name))) : [];
  return paths.find((path) => existsSync(path)) ?? names.at(-1);
}

/** Starts a program that ends with this process at the latest, and keeps the end of what it says. */
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

/** Ends the child with this process at the latest. One listener for all: Node warns of more than ten. */
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

/** Waits until the server that `launch` has started greets on `port`, for at most `within` ms. */
export async function ready(child, port, greeting, within = READY_WITHIN) {
  for (const until = Date.now() + within; Date.now() < until; await sleep(20)) {
    if (child.failure) throw new Error(`The server cannot be started:\n${child.output}`, { cause: child.failure });
    if (await answers(port, greeting)) return;
  }
  throw new Error(`The server on port ${port} does not answer:\n${child.output}`);
}

/** Whether the server on `port` of `address` greets: it is sent `hello`, and its first bytes must match `answer`. */
export function answers(port, { hello, answer, address = '127.0.0.1' }) {
  return new Promise((resolve) => {
    const socket = connect(port, address, () => {
      if (hello !== '') socket.write(hello);
    });
    socket.once('data', (data) => finish(answer.test(data.toString('latin1'))));
    socket.once('error', () => finish(false));
    // A server that is starting may close it without a word, and then there is no timeout any more.
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
 * The command that runs this program so that the kernel ends it with us, whatever ends us: below Jest `process` is a copy, whose
 * 'exit' never comes, so a hook that runs into its time-out would leave its server behind. On Linux alone.
 */
export function tiedToUs(program, args) {
  return existsSync(SETPRIV) ? [SETPRIV, ['--pdeathsig', 'KILL', program, ...args]] : [program, args];
}

/** Ends the process, unless it has ended, and waits for that. */
export async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.ref();
  child.kill(signal);
  await ended;
}

// Below those that systems give to outgoing connections (Linux from 32 768): between our look and the server's start, and while
// a server is down before it is started again, one of those would take a port from among them.
const [FIRST_PORT, PORTS] = [10_000, 22_000];

/**
 * A port of the loopback interface on which nobody listens now, and which no other of our processes chooses while this one lives: its
 * server is down at times. At random, so that test files that run together do not meet.
 */
export async function freePort() {
  for (;;) {
    const port = FIRST_PORT + randomInt(PORTS);
    if ((await reserve(port)) && (await isFree(port))) return port;
  }
}

/** By the port of UDP of that number, which none of the servers uses: the system gives it back however we end. */
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
