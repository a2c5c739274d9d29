import type { ProviderContext, Renewal, RenewOutcome, SuspensionDetector } from '../../engine/lock-provider.js';
import type { EngineSelector } from './engine-selector.js';
import { type DueRenewal, EngineRenewals } from './engine-renewals.js';
import type { Engine } from './engine.js';
import type { FailoverSettings } from './failover-options.js';
import type { Placement } from './placement.js';
import type { Placements } from './placements.js';
import { PATIENCE_PER_WINDOW } from './shared-record.js';

/** Renewals of locks: of what their engines keep, and of the belief in their epoch. */
export class LockRenewals {
  readonly #isStrict: boolean;
  readonly #engineRenewals: EngineRenewals;

  constructor(
    private readonly settings: FailoverSettings,
    private readonly context: ProviderContext,
    private readonly selector: EngineSelector,
    private readonly placements: Placements,
    private readonly suspension: SuspensionDetector,
  ) {
    this.#isStrict = settings.mode === 'strict';
    const patience = this.#isStrict ? settings.window / PATIENCE_PER_WINDOW : Infinity;
    this.#engineRenewals = new EngineRenewals(patience, context);
  }

  async renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    const suspensions = this.suspension.observe();
    const placements = renewals.map(({ grant }) => this.placements.of(grant.holder));
    const due = new Map<Engine, DueRenewal[]>();
    renewals.forEach(({ lease }, index) => {
      const placement = placements[index];
      if (!placement?.grant || !this.#isDue(placement, suspensions)) return;
      const ofEngine = due.get(placement.engine) ?? [];
      const { grant } = placement;
      ofEngine.push({ placement, renewal: { grant, lease: this.#isStrict ? grant.lease : lease } });
      due.set(placement.engine, ofEngine);
    });
    const outcomes = await this.#engineRenewals.send(due, suspensions);
    const now = this.context.clock.now();
    const isNews = placements.every(
      (placement) => !placement || placement.validUntil(this.selector, now) > placement.believedUntil,
    );
    const isConfirmed = isNews || (await this.selector.confirm());
    return placements.map((placement) =>
      placement ? this.#renewed(placement, outcomes.get(placement), suspensions, isConfirmed) : 'lost',
    );
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
