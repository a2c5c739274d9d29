import type {
  AcquireRequest,
  Grant,
  Member,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Clock } from '../../api/clock.js';
import { type HeldPart, isHeld, newPart, type Part, releasePart } from './part.js';

/**
 * What one holder has in all engines, or still asks for. It is held while at least `needed` of them have granted, and as
 * long as that many are valid together.
 */
export class Holding {
  readonly #parts: Part[] = [];
  #request: AcquireRequest;
  #isComplete = false;
  /** Until when its holder was told that it is held, on the monotonic clock. */
  #toldUntil = -Infinity;
  /** Until when what is given back stays parked, once it is; in the past for not at all. */
  #keepUntil: number | undefined;
  /** Also what was never used is given back as if it had. */
  #hasFailed = true;
  #released = 0;
  /** The longest lease that an engine was asked for. */
  #longestLease: number;

  /** @param owners leads from the holder id of a part to its holding, as long as there is such a part */
  constructor(
    request: AcquireRequest,
    readonly needed: number,
    private readonly clock: Clock,
    private readonly owners: Map<string, Holding>,
  ) {
    this.#request = request;
    this.#longestLease = request.lease;
  }

  /** What its holder asked for last. */
  get request(): AcquireRequest {
    return this.#request;
  }

  /** Its holder asks again, and may not wait as long any more. */
  askedAgain(request: AcquireRequest): void {
    this.#request = request;
  }

  /** In the order in which they were begun. */
  get parts(): readonly Part[] {
    return [...this.#parts];
  }

  /** As many engines have granted as it takes, and may have it still: one that was silent for a lease may have let it go. */
  get isGranted(): boolean {
    return this.validUntil > this.clock.now();
  }

  /** It was granted as a whole. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** A release was sent, so its ids are dead. */
  get isReleasing(): boolean {
    return this.#keepUntil !== undefined;
  }

  /** Until when its holder was told that it is held, on the monotonic clock. */
  get toldUntil(): number {
    return this.#toldUntil;
  }

  get validUntil(): number {
    return leastOfBest(
      this.#held.map(({ validUntil }) => validUntil),
      this.needed,
    );
  }

  /** Begins a part: on record before it is asked for, so that a release finds it whatever becomes of the ask. */
  begin(engine: Member, id: string): Part {
    const { key, mode } = this.request;
    const part = newPart(engine, { key, holder: id, mode });
    this.#parts.push(part);
    this.owners.set(id, this);
    return part;
  }

  /** Asks the engine of a part. `wait` and `signal` are those of this ask. */
  async ask(part: Part, { wait, signal }: Pick<AcquireRequest, 'wait' | 'signal'>): Promise<Grant | 'busy'> {
    const { lease, renew, minHold, depth = 0, options } = this.request;
    return part.engine.acquire({ ...part.holder, lease, renew, minHold, depth, options, wait, signal });
  }

  /** The engine of a part has granted. */
  granted(part: Part, grant: Grant): void {
    part.grant = grant;
    part.validUntil = grant.validUntil;
  }

  /** The grant of the whole. */
  complete(): Grant {
    this.#isComplete = true;
    const { key, holder, mode } = this.request;
    const lease = Math.min(...this.#held.map(({ grant }) => grant.lease));
    return { key, holder, mode, lease, validUntil: this.told(this.validUntil), fencingToken: null };
  }

  /** Takes note of what is told to its holder. */
  told(validUntil: number): number {
    this.#toldUntil = validUntil;
    return validUntil;
  }

  /**
   * Begins the end, or goes on with it; answers how what is left is to be given back.
   *
   * What is left when a part was lost stays parked until the time that its holder was told: that one knows of the loss, and may still
   * be about to stop.
   */
  end({ keepFor, failed }: ReleaseManner): ReleaseManner {
    this.#hasFailed = failed;
    this.#keepUntil ??= this.#isComplete && !this.isGranted ? this.#toldUntil : -Infinity;
    this.#keepUntil = Math.max(this.#keepUntil, this.clock.now() + keepFor);
    return this.#manner;
  }

  /** Its parts are about to be prolonged to `lease` ms. */
  renewing(lease: number): void {
    this.#longestLease = Math.max(this.#longestLease, lease);
  }

  /** What became of the renewal of a part. One that is lost counts no more, but is still released. */
  renewed(part: Part, outcome: RenewOutcome): void {
    if (outcome === 'lost') part.validUntil = -Infinity;
    else if (outcome !== 'unknown' && isHeld(part)) part.validUntil = outcome.validUntil;
  }

  /** An engine says that the part with this id is lost. */
  lost(id: string): void {
    const part = this.#parts.find(({ holder }) => holder.holder === id);
    if (part) part.validUntil = -Infinity;
  }

  /** Nothing is left of the part in its engine. */
  forget(part: Part): void {
    const index = this.#parts.indexOf(part);
    if (index >= 0) this.#parts.splice(index, 1);
    this.owners.delete(part.holder.holder);
  }

  /** What was given back, or may still be there, and is not confirmed to be gone. What is over by now is forgotten. */
  left(): readonly Part[] {
    const now = this.clock.now();
    for (const part of this.parts) if (part.overAt <= now) this.forget(part);
    return this.parts;
  }

  /** Resolves when each release that is under way has been answered, or was not. */
  async answered(): Promise<void> {
    await Promise.all(this.#parts.flatMap(({ release }) => release ?? []));
  }

  /**
   * Gives back a part that the whole does not need, or needs no more: it counts no more, and its id is dead. Answers whether
   * that is confirmed.
   */
  giveBack(part: Part): Promise<boolean> {
    part.validUntil = -Infinity;
    return this.#release(part, this.#manner);
  }

  /**
   * Releases all parts, the last one first, whatever becomes of each; may be called again until nothing is unknown.
   *
   * In reverse, so that whoever asks in order and finds the first engine free finds the others free as well.
   */
  async releaseInReverse(manner: ReleaseManner): Promise<ReleaseOutcome> {
    for (const part of this.#parts.toReversed()) await this.#releaseAnew(part, manner);
    return this.#outcome;
  }

  /** As {@link releaseInReverse}, all at once, and answered as soon as enough are: one that is down delays nobody. */
  async releaseTogether(manner: ReleaseManner): Promise<ReleaseOutcome> {
    const all = this.#parts.map((part) => this.#releaseAnew(part, manner));
    await new Promise<void>((resolve) => {
      const look = () => {
        if (this.#outcome === 'released') resolve();
      };
      for (const each of all) void each.then(look);
      void Promise.all(all).then(() => {
        resolve();
      });
    });
    return this.#outcome;
  }

  /** Sent whenever the engine of this process calls for it: a wire that was frozen for longer than a lease may still deliver the ask. */
  #releaseAnew(part: Part, manner: ReleaseManner): Promise<boolean> {
    part.overAt = Infinity;
    return this.#release(part, manner);
  }

  /** Answers whether it was answered. One at a time: an engine that hangs would gather those that are sent again. */
  #release(part: Part, manner: ReleaseManner): Promise<boolean> {
    // What was asked for may be executed as late as now; then it is there for a lease.
    part.overAt = Math.min(part.overAt, this.clock.now() + Math.max(this.#longestLease, this.request.minHold));
    part.release ??= this.#sendRelease(part, manner).finally(() => {
      part.release = undefined;
    });
    return part.release;
  }

  async #sendRelease(part: Part, manner: ReleaseManner): Promise<boolean> {
    // As it is now: a renewal that meets this release at the engine, over another connection, finds nothing, and may be answered first.
    const wasHeld = isHeld(part);
    const outcome = await releasePart(part, manner);
    if (outcome === 'unknown') return false;
    if (outcome === 'released' && wasHeld) this.#released += 1;
    this.forget(part);
    return true;
  }

  /** How what is left is to be given back. */
  get #manner(): ReleaseManner {
    const keepUntil = this.#keepUntil ?? -Infinity;
    return { keepFor: Math.max(0, keepUntil - this.clock.now()), failed: this.#hasFailed };
  }

  get #outcome(): ReleaseOutcome {
    if (this.#isComplete && this.#released >= this.needed) return 'released';
    return this.#parts.length > 0 ? 'unknown' : 'lost';
  }

  get #held(): HeldPart[] {
    return this.#parts.filter(isHeld);
  }
}

/** Until when `needed` are valid together if each is until one of `ends`; never, if there are fewer. */
export function leastOfBest(ends: readonly number[], needed: number): number {
  return ends.toSorted((one, other) => other - one)[needed - 1] ?? -Infinity;
}
