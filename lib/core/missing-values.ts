import type { LockLogger } from '../api/logger.js';
import type { LockKey } from '../key/lock-key.js';
import { missingValueIn } from '../key/missing-value.js';
import { quote } from '../key/quote.js';
import { WarnedPlaces } from './toolkit/warned-places.js';

/**
 * Warns about keys that contain the text of a missing value, such as `order:undefined`. Warns once per key function or
 * first key segment.
 */
export class MissingValues {
  readonly #reported = new WarnedPlaces();

  constructor(private readonly logger: LockLogger) {}

  /**
   * Checks a call's key. If there's nothing to report, this costs only one scan of the key.
   *
   * @param method the decorated method whose key function returned the key
   */
  check(key: LockKey, method?: string): void {
    const missing = missingValueIn(key);
    if (!missing) return;
    const place = method ?? missing.key.split(/[:/]/, 1).join();
    if (!this.#reported.add(place)) return;
    this.logger.warn(
      `Lock key ${quote(missing.key)} contains the text "${missing.segment}" instead of a value, so all calls without the value share one lock. ` +
        `${method === undefined ? '' : `It comes from the key function of ${method}. `}Build it with lockKey, such as lockKey\`order:\${order.id}\`, which rejects missing values.`,
    );
  }
}
