// Control: deadlock detection that trusts a single read. The judge must find it guilty.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { oppositeKeysOf } from './opposite-keys.mjs';
import * as redis from './redis.mjs';

/** How long the entry of a wait is kept. It isn't removed when the wait is over. */
const KEPT = 5_000;
/** By then, a deadlock that still exists is no false alarm. */
const LOOKS_AFTER = 2_000;
const LOOKS_EVERY = 300;

const opposite = oppositeKeysOf({ ...redis, connect });

export const naiveDeadlock = {
  ...opposite,
  title: 'control: deadlocks found by one look at entries that expire, hand-written',
  /** A caller that has stopped waiting still counts as a waiter. */
  control: ['false-alarm'],
  // It is guilty without any fault. This one has no effect on it.
  faults: ['client clock stepped'],
  allows: {},
};

async function connect(settings) {
  const { Redis } = await import('ioredis');
  const entries = new Redis(settings.ports[0], '127.0.0.1');
  entries.on('error', () => undefined);
  const connected = await redis.connect(settings);

  const search = async (own, over) => {
    await sleep(LOOKS_AFTER);
    while (!over.signal.aborted) {
      const names = await entries.keys('naive:wait:*');
      const texts = names.length > 0 ? await entries.mget(names) : [];
      const cycle = cycleOf(own, texts.filter(Boolean).map(JSON.parse));
      if (cycle) over.abort(Object.assign(new Error('deadlock'), { code: 'LOCK_DEADLOCK', cycle }));
      await sleep(LOOKS_EVERY);
    }
  };
  return {
    ...connected,
    async acquire(key, terms, holds) {
      if (holds.length === 0 || terms.wait === 0) return connected.acquire(key, terms);
      const own = { id: randomUUID(), instance: settings.worker, holds, waitsFor: key, mode: terms.mode };
      await entries.set(`naive:wait:${own.id}`, JSON.stringify(own), 'PX', KEPT);
      const over = new AbortController();
      search(own, over).catch(() => undefined);
      try {
        const signal = AbortSignal.any([over.signal, terms.signal].filter(Boolean));
        return await connected.acquire(key, { ...terms, signal });
      } finally {
        over.abort();
      }
    },
    async stop() {
      entries.disconnect();
      await connected.stop();
    },
  };
}

/** The members of a cycle among these waits that starts with `own`. */
function cycleOf(own, waits) {
  const seen = new Set();
  const path = (wait) => {
    if (seen.has(wait.id)) return undefined;
    seen.add(wait.id);
    for (const holder of waits.filter(({ holds }) => holds.includes(wait.waitsFor))) {
      const rest = holder.id === own.id ? [] : path(holder);
      if (rest) return [wait, ...rest];
    }
    return undefined;
  };
  const cycle = path(own);
  return cycle?.map((wait, index) => ({ ...wait, method: null, holds: cycle.at(index - 1).waitsFor }));
}
