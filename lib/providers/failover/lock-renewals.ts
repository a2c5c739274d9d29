import type { Grant, ProviderContext, RenewOutcome } from '../../api/lock-provider.js';
import type { SuspensionDetector } from '../../core/toolkit/suspension.js';
import type { EngineSelector } from './engine-selector.js';
import type { FailoverSettings } from './failover-options.js';
import { inTime } from './in-time.js';
import type { Placement } from './placement.js';
import type { Placements } from './placements.js';
import { PATIENCE_PER_WINDOW } from './shared-record.js';

/** Renewals of locks: of what their engines keep, and of the belief in their epoch. */
export class LockRenewals {
  readonly #isStrict: boolean;

  constructor(
    private readonly settings: FailoverSettings,
    private readonly context: ProviderContext,
    private readonly selector: EngineSelector,
    private readonly placements: Placements,
    private readonly suspension: SuspensionDetector,
  ) {
    this.#isStrict = settings.mode === 'strict';
  }

  async renew({ holder }: Grant, lease: number): Promise<RenewOutcome> {
    const suspensions = this.suspension.observe();
    const placement = this.placements.of(holder);
    if (!placement) return 'lost';
    const { grant } = placement;
    const outcome =
      grant && this.#isDue(placement, suspensions)
        ? await this.#renewAtEngine(placement, grant, this.#isStrict ? grant.lease : lease, suspensions)
        : undefined;
    const isNews = placement.validUntil(this.selector, this.context.clock.now()) > placement.believedUntil;
    const isConfirmed = isNews || (await this.selector.confirm());
    return this.#renewed(placement, outcome, suspensions, isConfirmed);
  }

  /**
   * In strict mode the engine's answer is waited for only so long that the belief can be confirmed in time: the lock is kept without
   * it. An answer that comes later still counts.
   */
  async #renewAtEngine(placement: Placement, grant: Grant, lease: number, suspensions: number): Promise<RenewOutcome> {
    let isLate = false;
    const answer = placement.engine.renew(grant, lease).then((outcome) => {
      if (typeof outcome === 'object') placement.renewed(outcome.validUntil, suspensions);
      if (isLate && outcome === 'lost') this.context.emit({ type: 'lost', holder: placement.attempt.holder });
      return outcome;
    });
    if (!this.#isStrict) return answer;
    try {
      return await inTime(answer, this.settings.window / PATIENCE_PER_WINDOW, this.context.clock);
    } catch {
      isLate = true;
      return 'unknown';
    }
  }

  /**
   * In strict mode most renewals prolong the belief alone: the engine is asked when a third of its lease is over, or would
   * be before the next renewal comes.
   */
  #isDue({ grant, keptUntil, isDoubtful, suspensions }: Placement, known: number): boolean {
    if (!this.#isStrict || isDoubtful || suspensions !== known) return true;
    const { lease = 0 } = grant ?? {};
    return this.context.clock.now() >= keptUntil - (lease * 2 + this.settings.window) / 3;
  }

  #renewed(
    placement: Placement,
    outcome: RenewOutcome | undefined,
    suspensions: number,
    isConfirmed: boolean,
  ): RenewOutcome {
    if (outcome === 'lost') return 'lost';
    // In strict mode it is kept also without an answer as long as it was, unless time has passed that no clock has counted.
    const isKept = typeof outcome === 'object' || (this.#isStrict && placement.suspensions === suspensions);
    if (!isKept) return 'unknown';
    const now = this.context.clock.now();
    const validUntil = placement.validUntil(this.selector, now);
    if (validUntil <= now) return 'unknown';
    // Nothing was gained. Called renewed it would be due again at once, and again, for as long as its engine is silent.
    if ((!isConfirmed || outcome === 'unknown') && validUntil <= placement.believedUntil) return 'unknown';
    placement.believedUntil = validUntil;
    return { validUntil };
  }
}
