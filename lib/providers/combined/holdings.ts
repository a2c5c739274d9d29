import type { AcquireRequest, ProviderContext, ReleaseManner, ReleaseOutcome } from '../../api/lock-provider.js';
import { LockUnavailableError } from '../../api/errors.js';
import { Holding } from './holding.js';
import { Leftovers } from './leftovers.js';
import { UNUSED } from './part.js';
import type { Quorum } from './quorum.js';

// Each look goes over all of them, and while an engine is down each caller leaves one more.
const FORGET_EVERY = 1_000;

/** What this process holds in the engines, asks for there, or could not give back. */
export class Holdings {
  readonly #byHolder = new Map<string, Holding>();
  /** By the holder ids of their parts. */
  readonly #owners = new Map<string, Holding>();
  /** What could not be given back. */
  readonly #orphans = new Set<Holding>();
  readonly #leftovers: Leftovers;
  #forgottenAt = -Infinity;

  constructor(
    private readonly quorum: Quorum,
    private readonly context: ProviderContext,
  ) {
    this.#leftovers = new Leftovers(context);
  }

  stop(): void {
    this.#leftovers.stop();
  }

  get(holder: string): Holding | undefined {
    return this.#byHolder.get(holder);
  }

  /** The one with the part that an engine knows by this id. */
  withPart(id: string): Holding | undefined {
    return this.#owners.get(id);
  }

  /** The holding that this holder has, or a new one with new ids if those it had are dead. */
  async of(request: AcquireRequest): Promise<Holding> {
    const known = this.#byHolder.get(request.holder);
    if (known && !known.isReleasing) {
      known.askedAgain(request);
      return known;
    }
    if (known && (await this.end(request.holder, UNUSED)) === 'unknown') throw unconfirmed(request.key);
    const holding = new Holding(request, this.quorum.needed, this.context.clock, this.#owners);
    this.#byHolder.set(request.holder, holding);
    return holding;
  }

  /** Gives back what the holder has, or may have. */
  async end(holder: string, manner: ReleaseManner): Promise<ReleaseOutcome> {
    const holding = this.#byHolder.get(holder);
    if (!holding) return 'lost';
    const outcome = await this.quorum.release(holding, holding.end(manner));
    if (outcome === 'unknown') this.#orphans.add(holding);
    else {
      this.#byHolder.delete(holder);
      this.#orphans.delete(holding);
      // Enough have confirmed it. What another one still has would keep others out of that engine for a lease.
      void holding.answered().then(() => {
        this.#leftovers.add(holding);
      });
    }
    return outcome;
  }

  /** Forgets what could not be given back and is over by now. */
  forgetOrphans(): void {
    const now = this.context.clock.now();
    if (now < this.#forgottenAt + FORGET_EVERY) return;
    this.#forgottenAt = now;
    for (const holding of this.#orphans) {
      if (holding.left().length > 0) continue;
      this.#orphans.delete(holding);
      this.#byHolder.delete(holding.request.holder);
    }
  }

  /** It was refused, and given back as far as engines have confirmed it. */
  refused(holding: Holding): void {
    this.#byHolder.delete(holding.request.holder);
    this.#leftovers.add(holding);
  }
}

export function unconfirmed(key: string): LockUnavailableError {
  return new LockUnavailableError(
    `An engine did not confirm that it gave back "${key}"; what it may still hold ends with its lease.`,
    { key },
  );
}
