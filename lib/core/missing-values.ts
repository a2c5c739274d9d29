import type { LockLogger } from '../api/logger.js';
import type { LockKey } from '../key/lock-key.js';
import { missingValueIn } from '../key/missing-value.js';
import { quote } from '../key/quote.js';

/** Warns of keys with the text of a missing value, such as `order:undefined`, once for each place in the code that makes them. */
export class MissingValues {
  // Bounded by the code, since a place is a line of it.
  readonly #reported = new Set<string>();

  constructor(private readonly logger: LockLogger) {}

  /**
   * Looks at the key of one call. Only a key that is reported costs more than a scan.
   *
   * @param method the decorated method whose key function made the key. Without it, the caller of the calling function made the key
   */
  check(key: LockKey, method?: string): void {
    const missing = missingValueIn(key);
    if (!missing) return;
    const place = method === undefined ? callerOfCaller() : `the key function of ${method}`;
    if (this.#reported.has(place)) return;
    this.#reported.add(place);
    this.logger.warn(
      `Lock key ${quote(missing.key)} contains the text "${missing.segment}" instead of a value, so all calls that miss the value exclude one another. ` +
        `It comes from ${place}. Make it with lockKey, such as lockKey\`order:\${order.id}\`, which refuses a missing value.`,
    );
  }
}

/** The place in the code that has called the function that called `check`, such as `OrderService.pay (/app/order.service.js:12:5)`. */
function callerOfCaller(): string {
  // The lines before it: the message, this function, check() and the function that called check().
  const caller = new Error().stack?.split('\n')[4];
  return caller?.trim().replace(/^at (async )?/, '') ?? 'a call of LockService';
}
