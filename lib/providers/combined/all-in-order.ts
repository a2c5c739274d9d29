import type { Clock, Timer } from '../../api/clock.js';
import type { Grant, Member, ProviderContext, ReleaseManner, ReleaseOutcome } from '../../api/lock-provider.js';
import { LockError, LockUnavailableError } from '../../api/errors.js';
import type { Holding } from './holding.js';
import { type HeldPart, isHeld, UNUSED } from './part.js';
import type { Quorum } from './quorum.js';
import { renewHolding } from './renewal.js';

/** All engines, one after the other in the configured order, so that no two processes wait for each other in a circle. */
export class AllInOrder implements Quorum {
  readonly needed: number;

  constructor(
    private readonly engines: readonly Member[],
    private readonly context: ProviderContext,
  ) {
    this.needed = engines.length;
  }

  async acquire(holding: Holding, departure: AbortSignal): Promise<Grant | 'busy' | 'lost'> {
    const { clock, random } = this.context;
    for (const [index, engine] of this.engines.entries()) {
      const part = holding.parts[index] ?? holding.begin(engine, random.id());
      if (isHeld(part)) continue;
      // A caller whose time is up while it already has some engines still gets those that are free.
      const wait = departure.aborted ? 0 : holding.request.wait;
      const upkeep = new Upkeep(holding, departure, clock);
      if (index > 0 && wait > 0) upkeep.begin();
      let answer: Grant | 'busy';
      try {
        answer = await holding.ask(part, { wait, signal: upkeep.signal });
      } catch (error) {
        throw index > 0 && isUnavailable(error) ? asSent(error) : error;
      } finally {
        upkeep.end();
      }
      if (holding.isReleasing) {
        // Its id died under way.
        if (answer !== 'busy') await engine.release(answer, UNUSED);
        return 'busy';
      }
      if (answer !== 'busy') holding.granted(part, answer);
      if (upkeep.hasFailed) return 'lost';
      if (answer === 'busy') return 'busy';
    }
    return holding.isGranted ? holding.complete() : 'lost';
  }

  release(holding: Holding, manner: ReleaseManner): Promise<ReleaseOutcome> {
    return holding.releaseInReverse(manner);
  }
}

function isUnavailable(error: unknown): error is LockUnavailableError {
  return LockError.is(error) && error.code === 'LOCK_UNAVAILABLE';
}

/** Says that something may be left: where an engine was never asked, there is still what the engines before it have granted. */
function asSent(error: LockUnavailableError): LockUnavailableError {
  const { key, provider } = error;
  return new LockUnavailableError(error.message, { key, provider, cause: error });
}

/** Keeps what a holding has of some engines while it waits for the next one, and ends the wait when some of it is lost. */
class Upkeep {
  readonly #had: number;
  readonly #end = new AbortController();
  #timer: Timer | undefined;
  #isOver = false;

  constructor(
    private readonly holding: Holding,
    private readonly departure: AbortSignal,
    private readonly clock: Clock,
  ) {
    this.#had = heldBy(holding).length;
  }

  /** Aborts when the caller leaves, and when something is lost. */
  get signal(): AbortSignal {
    return AbortSignal.any([this.departure, this.#end.signal]);
  }

  get hasFailed(): boolean {
    return heldBy(this.holding).length < this.#had;
  }

  begin(): void {
    const lease = Math.min(...heldBy(this.holding).map(({ grant }) => grant.lease));
    this.#timer = this.clock.setTimer(() => void this.#renew(), lease / 3);
  }

  end(): void {
    this.#isOver = true;
    if (this.#timer) this.clock.clearTimer(this.#timer);
  }

  async #renew(): Promise<void> {
    await renewHolding(this.holding, this.holding.request.lease);
    if (this.#isOver) return;
    if (this.hasFailed) this.#end.abort();
    else this.begin();
  }
}

function heldBy(holding: Holding): readonly HeldPart[] {
  return holding.parts.filter(isHeld);
}
