import type { AcquireRequest, Grant, Holder } from '../../api/lock-provider.js';
import type { Choice, EngineSelector } from './engine-selector.js';
import type { Engine } from './engine.js';

/** On what terms an engine is asked; all times in ms. */
export type PlacementTerms = Pick<AcquireRequest, 'lease' | 'renew' | 'minHold'>;

/**
 * Where one attempt went: to one engine, in one epoch. It is what that engine is asked. After a switch back the same
 * attempt may come to the same engine again, where its id of the earlier epoch is dead; so each placement after the first
 * has an id of its own.
 */
export class Placement implements AcquireRequest {
  readonly key: string;
  readonly mode: Holder['mode'];
  readonly lease: number;
  readonly renew: boolean;
  readonly minHold: number;
  readonly depth: number;
  readonly options: AcquireRequest['options'];
  /** What the engine has granted, as long as it is held. */
  grant: Grant | undefined;
  /** Until when the engine keeps it, on the monotonic clock. */
  keptUntil = -Infinity;
  /** Until when it was last said to be ours, on the monotonic clock. */
  believedUntil = -Infinity;
  /** How many suspensions of the machine were known when the engine last acknowledged it. */
  suspensions = 0;
  /** Its release was asked for. */
  isReleased = false;
  /** It was given back, or sent away, and its attempt may ask again: under another id, for this one is dead. */
  isSpent = false;
  /** The engine was out of reach since it was last heard of it: ask whether it still stands. */
  isDoubtful = false;
  #attempt: AcquireRequest;
  #signal: AbortSignal | undefined;
  #withdrawal: AbortController | undefined;

  constructor(
    attempt: AcquireRequest,
    readonly choice: Choice,
    readonly engine: Engine,
    readonly holder: string,
    terms: PlacementTerms,
  ) {
    this.#attempt = attempt;
    this.key = attempt.key;
    this.mode = attempt.mode;
    this.depth = attempt.depth ?? 0;
    this.options = attempt.options;
    this.lease = terms.lease;
    this.renew = terms.renew;
    this.minHold = terms.minHold;
  }

  /** What its caller asked for last. */
  get attempt(): AcquireRequest {
    return this.#attempt;
  }

  /** Its engine knows it by another id than its caller. */
  get isRenamed(): boolean {
    return this.holder !== this.attempt.holder;
  }

  /** For how many ms its engine may keep it after it was last asked for it. */
  get keptFor(): number {
    return Math.max(this.lease, this.minHold);
  }

  get wait(): number {
    return this.attempt.wait;
  }

  get signal(): AbortSignal {
    this.#withdrawal ??= new AbortController();
    return (this.#signal ??= AbortSignal.any([this.attempt.signal, this.#withdrawal.signal]));
  }

  /** Until when it is ours, as things stand at `now`: its engine keeps it, and the selector believes in its epoch. */
  validUntil(selector: Pick<EngineSelector, 'validUntil'>, now: number): number {
    return Math.min(this.keptUntil, selector.validUntil(this.choice.epoch, now));
  }

  /** Its caller asks again, and may wait by another signal: a provider that stands on this one makes one for each ask. */
  askedAgain(attempt: AcquireRequest): void {
    if (attempt === this.#attempt) return;
    this.#attempt = attempt;
    this.#signal = undefined;
  }

  /** Its engine has renewed it, sent after so many suspensions. */
  renewed(validUntil: number, suspensions: number): void {
    this.keptUntil = validUntil;
    this.isDoubtful = false;
    this.suspensions = suspensions;
  }

  /** Sends a waiter away from an engine that grants no more. */
  withdraw(): void {
    this.#withdrawal ??= new AbortController();
    this.#withdrawal.abort();
  }
}
