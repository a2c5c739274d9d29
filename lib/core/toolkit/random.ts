import { randomFillSync } from 'node:crypto';
import type { Random } from '../../api/random.js';

const ID_BYTES = 16;

/**
 * Replaces the first digits of each id with `prefix`. With an instance id as the prefix, 20 of the 32 digits stay
 * random.
 */
export function withPrefix(random: Random, prefix: string): Random {
  return {
    id: () => prefix + random.id().slice(prefix.length),
    fraction: () => random.fraction(),
  };
}

/** Randomness from the operating system. One system call fills a page of 256 ids, which costs 0.1 µs per id. */
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
