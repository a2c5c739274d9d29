import type { Grant, ReleaseManner, ReleaseOutcome } from '../../engine/lock-provider.js';
import type { Holding } from './holding.js';

/** How a lock is taken in several engines, and given back to them. */
export interface Quorum {
  /** How many engines must grant. */
  readonly needed: number;

  /**
   * Asks until the holding is granted, or busy; `lost` if something of it was lost before all was there. What is not granted
   * is still to be released. Goes on where an earlier ask has stopped.
   *
   * @param departure aborts when the caller has left, or the holding is released
   */
  acquire(holding: Holding, departure: AbortSignal): Promise<Grant | 'busy' | 'lost'>;

  release(holding: Holding, manner: ReleaseManner): Promise<ReleaseOutcome>;
}
