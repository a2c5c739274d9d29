// Only what this library sends to the nodes for a free lock: the cost of its scripts without its code.
import { Redis } from 'ioredis';
import { RedlockKeyLayout } from '../../dist/providers/redlock/key-layout.js';
import { LOCK_SCRIPT, roundDigits, tokenDigits } from '../../dist/providers/redlock/lock-script.js';

const LEASE = 10_000;

/** A candidate on the servers at these ports: it knows the next token, like a process without competitors. */
export async function scripts(ports) {
  const layout = new RedlockKeyLayout('bare');
  const clients = ports.map((port) => new Redis(port));
  await Promise.all(clients.map((client) => client.script('LOAD', LOCK_SCRIPT.text)));
  await Promise.all(clients.map((client) => client.set(layout.counter, tokenDigits(Date.now() * 1_000))));
  for (const client of clients) client.on('error', () => undefined);
  const majority = Math.floor(ports.length / 2) + 1;
  let round = 0;
  let last = 0;

  /** Resolves when a majority has replied 1, and rejects once that has become impossible. */
  const ask = (...args) =>
    new Promise((resolve, reject) => {
      let yes = 0;
      let no = 0;
      const count = (reply) => {
        if (reply === 1) yes += 1;
        else no += 1;
        if (yes === majority) resolve();
        else if (no > ports.length - majority) reject(new Error(`A node replied ${reply}.`));
      };
      for (const client of clients) client.evalsha(LOCK_SCRIPT.sha, ...args).then(count, count);
    });

  return {
    acquire: async (key) => {
      round += 1;
      last = Math.max(last + 1, Date.now() * 1_000 + 1_000);
      const lock = layout.lockOf(key);
      const holder = round.toString(16).padStart(32, '0');
      await ask(2, layout.counter, lock, '', 'V', holder + tokenDigits(last) + roundDigits(round), LEASE);
      return () => ask(2, layout.counter, lock, '', 'R', holder, 0);
    },
  };
}
