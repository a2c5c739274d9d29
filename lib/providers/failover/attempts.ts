import type {
  AcquireRequest,
  Answer,
  Grant,
  Holder,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
} from '../../api/lock-provider.js';
import type { SuspensionDetector } from '../../core/toolkit/suspension.js';
import { LockUnavailableError } from '../../api/errors.js';
import type { Choice, EngineSelector } from './engine-selector.js';
import type { Engine } from './engine.js';
import type { EpochTokens } from './epoch-tokens.js';
import type { FailoverSettings } from './failover-options.js';
import { Placement, type PlacementTerms } from './placement.js';
import type { Placements } from './placements.js';

/** The way of each attempt to the engine that grants when it asks, and of its lock back. */
export class Attempts {
  readonly #isStrict: boolean;
  /** Those of every lock; undefined where each has its own. */
  readonly #terms: PlacementTerms | undefined;

  constructor(
    private readonly settings: FailoverSettings,
    private readonly context: ProviderContext,
    private readonly selector: EngineSelector,
    private readonly engineOf: (name: string) => Engine,
    private readonly placements: Placements,
    private readonly suspension: SuspensionDetector,
    /** Undefined where the engines give none. */
    private readonly tokens: EpochTokens | undefined,
  ) {
    this.#isStrict = settings.mode === 'strict';
    if (this.#isStrict) this.#terms = { lease: settings.lease, renew: true, minHold: 0 };
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    const now = this.context.clock.now();
    const placement = this.#place(request, this.selector.choose(now), now);
    return placement.engine.acquire(placement, this.#admit);
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    const placement = this.placements.of(holder.holder);
    if (!placement) return 'lost';
    // Is not to be prolonged any more, nor believed if its grant is still under way. Nobody asks again for this attempt.
    placement.isReleased = true;
    placement.isSpent = false;
    return placement.engine.release(placement, manner);
  }

  /** The place of an attempt: the one it has, if that is of this epoch. */
  #place(attempt: AcquireRequest, choice: Choice, now: number): Placement {
    const known = this.placements.of(attempt.holder);
    if (known?.choice === choice && !known.isSpent) {
      known.askedAgain(attempt);
      return known;
    }
    if (known?.isSpent) this.placements.delete(known);
    else if (known) this.#drop(known);
    const holder = known ? this.context.random.id() : attempt.holder;
    const placement = new Placement(attempt, choice, this.engineOf(choice.engine), holder, this.#terms ?? attempt);
    placement.suspensions = this.suspension.recent(now);
    this.placements.add(placement);
    return placement;
  }

  /** Gives back what nobody wants any more. */
  #drop(placement: Placement): void {
    this.placements.delete(placement);
    this.#giveBack(placement);
  }

  #giveBack(placement: Placement): void {
    void placement.engine.release(placement, { keepFor: 0, failed: true });
  }

  /** What an engine's answer is worth by now. */
  readonly #admit = (placement: Placement, answer: Grant | 'busy'): Grant | 'busy' => {
    if (answer !== 'busy') placement.grant = answer;
    if (!this.placements.has(placement) || placement.isReleased) {
      // The attempt was given up meanwhile, and its release may have gone ahead.
      if (answer !== 'busy') this.#drop(placement);
      return 'busy';
    }
    const { choice, attempt } = placement;
    const now = this.context.clock.now();
    if (answer === 'busy') {
      // Maybe sent away from its queue, of which the engine may be told late: that would free what was granted to the same id since.
      placement.isSpent = true;
      if (this.selector.choose(now) !== choice) throw this.#overtaken();
      this.placements.delete(placement);
      return 'busy';
    }
    placement.keptUntil = answer.validUntil;
    const validUntil = placement.validUntil(this.selector, now);
    if (validUntil <= now) {
      // Stays known: a release that is not answered is sent again, and would free what was granted to the same id since.
      placement.isSpent = true;
      this.#giveBack(placement);
      throw this.#overtaken();
    }
    placement.believedUntil = validUntil;
    return {
      key: attempt.key,
      holder: attempt.holder,
      mode: attempt.mode,
      fencingToken: this.tokens?.tokenOf(answer.fencingToken, choice) ?? null,
      validUntil,
      lease: this.#isStrict ? Math.min(this.settings.window, answer.lease) : answer.lease,
    };
  };

  #overtaken(): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `Lock provider "${name}" had gone over to another engine, or could not confirm its own, when the answer came.`,
      { provider: name },
    );
  }
}
