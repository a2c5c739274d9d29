// Plain JavaScript, because scripts use it before anything is built. The types are in redis-server.d.mts.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { answers, end, freePort, killAtExit, programOf, tiedToUs } from './server-process.mjs';

const READY_WITHIN = 10_000;
/** Matches only this process. A server that requires a password is also up. */
const greetingOf = (pid) => ({ hello: 'INFO server\r\n', answer: new RegExp(`process_id:${pid}\\b|NOAUTH|NOPERM`) });

/** Starts Redis on a free loopback port in a temporary folder, or Valkey if LOCK_TEST_ROOT contains it. */
export async function startRedisServer({ args: given = [], env = {}, sentinel } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'lock-redis-'));
  const port = await freePort();
  let args = ['--save', '', '--appendonly', 'no', ...given];
  if (sentinel !== undefined) {
    // A Sentinel stores its state in its configuration file.
    const file = join(folder, 'sentinel.conf');
    await writeFile(file, sentinel);
    args = [file, '--sentinel', ...given];
  }
  const remove = () => rm(folder, { recursive: true, force: true });
  let child = await launch(port, folder, args, env).catch(async (error) => {
    await remove();
    throw error;
  });
  return {
    port,
    folder,
    url: `redis://127.0.0.1:${port}`,
    get pid() {
      return child.pid;
    },
    /** Sends a signal to the server, such as SIGSTOP or SIGCONT. */
    signal(name) {
      child.kill(name);
    },
    /** Kills the server and restarts it with the same port and folder. */
    async crash({ downFor = 0 } = {}) {
      await end(child, 'SIGKILL');
      await sleep(downFor);
      child = await launch(port, folder, args, env);
    },
    async stop() {
      await end(child, 'SIGKILL');
      await remove();
    },
  };
}

async function launch(port, folder, args, env) {
  // The given arguments come first, because they may start with a file.
  const all = [...args, '--port', String(port), '--bind', '127.0.0.1', '--dir', folder];
  const child = spawn(...tiedToUs(programOf('valkey-server', 'redis-server'), all), {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text) => (output = (output + text).slice(-4_000)));
    stream.unref();
  }
  child.unref();
  killAtExit(child);
  const failed = new Promise((_, reject) => {
    child.once('error', (cause) => reject(new Error('redis-server cannot be started: is it on the PATH?', { cause })));
    child.once('exit', (code, signal) => reject(new Error(`redis-server ended (${code ?? signal}):\n${output}`)));
  });
  failed.catch(() => undefined);
  await Promise.race([ready(port, child.pid, () => output), failed]);
  return child;
}

async function ready(port, pid, output) {
  const greeting = greetingOf(pid);
  for (const until = Date.now() + READY_WITHIN; Date.now() < until; await sleep(10)) {
    if (await answers(port, greeting)) return;
  }
  throw new Error(`redis-server on port ${port} does not respond:\n${output()}`);
}
