// Plain JavaScript like the other servers. The types are in memcached-server.d.mts.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { answers, end, freePort, killAtExit, programOf } from './server-process.mjs';

const READY_WITHIN = 10_000;
const GREETING = { hello: 'version\r\n', answer: /^(VERSION|CLIENT_ERROR unauthenticated)/ };

/** Starts memcached on a free loopback port. */
export async function startMemcached({ args = [] } = {}) {
  const port = await freePort();
  let child = await launch(port, args);
  return {
    port,
    address: `127.0.0.1:${port}`,
    signal(name) {
      child.kill(name);
    },
    async crash() {
      await end(child, 'SIGKILL');
      child = await launch(port, args);
    },
    async command(line) {
      const socket = connect(port, '127.0.0.1');
      socket.write(`${line}\r\n`);
      const [data] = await once(socket, 'data');
      socket.destroy();
      return data.toString('latin1').split('\r\n')[0];
    },
    async keys() {
      const socket = connect(port, '127.0.0.1');
      socket.write('lru_crawler metadump all\r\n');
      let dump = '';
      for await (const data of socket) {
        dump += data.toString('latin1');
        if (/(^|\n)(END|BUSY)/.test(dump)) break;
      }
      return [...dump.matchAll(/^key=(\S+)/gm)].map(([, key]) => decodeURIComponent(key));
    },
    stop: () => end(child, 'SIGKILL'),
  };
}

async function launch(port, args) {
  // memcached refuses to run as root without this option.
  const user = process.getuid?.() === 0 ? ['-u', 'root'] : [];
  const child = spawn(programOf('memcached'), ['-p', String(port), '-l', '127.0.0.1', ...user, ...args], {
    stdio: 'ignore',
  });
  child.unref();
  killAtExit(child);
  const failed = new Promise((_, reject) => {
    child.once('error', (cause) => reject(new Error('memcached cannot be started: is it on the PATH?', { cause })));
    child.once('exit', (code, signal) => reject(new Error(`memcached ended (${code ?? signal}).`)));
  });
  failed.catch(() => undefined);
  await Promise.race([ready(port), failed]);
  return child;
}

async function ready(port) {
  for (const until = Date.now() + READY_WITHIN; Date.now() < until; await sleep(10)) {
    if (await answers(port, GREETING)) return;
  }
  throw new Error(`memcached on port ${port} does not respond.`);
}
