import type { Grant, ReleaseManner, ReleaseOutcome } from '../../api/lock-provider.js';
import type { Holding } from './holding.js';

/** How a lock is taken in several engines, and given back to them. */
export interface Quorum {
  /** How many engines must grant. */
  readonly needed: number;

  /**
   * Asks until the holding is granted, or busy; `lost` if something of it was lost before all was there. What is not granted
   * is still to be released. `refused`: busy, and given back already as far as engines have confirmed it; the rest is too
   * little to hold the lock, and is given back in the background. Goes on where an earlier ask has stopped.
   *
   * @param departure aborts when the caller has left, or the holding is released
   */
  acquire(holding: Holding, departure: AbortSignal): Promise<Grant | 'busy' | 'lost' | 'refused'>;

  release(holding: Holding, manner: ReleaseManner): Promise<ReleaseOutcome>;
}
