// What every row program needs: for each package, a dedicated Redis and processes that use the package on it.
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { packages } from './packages.mjs';

/** Shown for what a package doesn't offer. */
export const NONE = '–';

/**
 * Runs `show` for each package in turn, and prints the row. `show` returns the text of the package's cell. It receives
 * the package, its server, and `open`, which opens a process of the package.
 */
export async function compare(question, show) {
  const cells = {};
  console.log(question);
  for (const each of packages) {
    cells[each.name] = await cellOf(each, show);
    console.log(`  ${each.name.padEnd(26)} ${cells[each.name]}`);
  }
  process.send?.({ question, cells });
}

async function cellOf(each, show) {
  const atEnd = [];
  const server = await startRedisServer();
  const connect = (url) => {
    const client = new Redis(url);
    // Each client reports its own outages, which some row programs cause.
    client.on('error', () => undefined);
    atEnd.unshift(() => client.disconnect());
    return client;
  };
  const open = async (options) => {
    const opened = await each.open({ url: server.url, connect, ...options });
    atEnd.unshift(() => opened.stop());
    return opened;
  };
  try {
    return await show({ ...each, server, connect, open, atEnd: (end) => atEnd.unshift(end) });
  } finally {
    // A package whose server is gone may never respond.
    for (const end of atEnd) await within(2_000, Promise.resolve(end()).catch(ignored));
    await server.stop();
  }
}

/**
 * How a promise settles: `{ value }` or `{ error }`, and after how many `seconds`. Neither if it takes longer than
 * `limit`.
 */
export async function outcome(promise, limit = 30_000) {
  const startedAt = performance.now();
  const settled = promise.then(
    (value) => ({ value }),
    (error) => ({ error }),
  );
  const ended = await within(limit, settled);
  return { ...ended, seconds: seconds(performance.now() - startedAt) };
}

/** What a promise resolves to, or `undefined` after the timeout. */
export async function within(milliseconds, promise) {
  const end = new AbortController();
  const timeout = sleep(milliseconds, undefined, { signal: end.signal }).catch(ignored);
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    end.abort();
  }
}

/** Runs `inside` under the lock until `leave` is called. Resolves when the lock is held. */
export async function hold({ run }, key, lease) {
  let leave;
  const left = new Promise((resolve) => (leave = resolve));
  let done;
  await new Promise((entered, refused) => {
    done = run(key, lease, () => {
      entered();
      return left;
    });
    done.catch(refused);
  });
  return {
    async leave() {
      leave();
      await done;
    },
  };
}

export function seconds(milliseconds) {
  return `${(milliseconds / 1_000).toFixed(1)} s`;
}

/** The name of an error, as set by its package. */
export function nameOf(error) {
  return error.name === 'Error' ? error.constructor.name : error.name;
}

function ignored() {
  return undefined;
}
