import type { AcquireRequest, Grant, Holder } from '../../engine/lock-provider.js';
import type { Choice } from './engine-selector.js';

/** On what terms an engine is asked; all times in ms. */
export type PlacementTerms = Pick<AcquireRequest, 'lease' | 'renew' | 'minHold'>;

/**
 * Where one attempt went: to one engine, in one epoch, under an id of its own there. After a switch back the same
 * attempt may come to the same engine again, where its id of the earlier epoch is dead.
 */
export class Placement implements Holder {
  readonly key: string;
  readonly mode: Holder['mode'];
  /** What the engine has granted, as long as it is held. */
  grant: Grant | undefined;
  /** Until when the engine keeps it, on the monotonic clock. */
  keptUntil = -Infinity;
  /** The engine was out of reach since it was last heard of it: ask whether it still stands. */
  isDoubtful = false;
  #departure: AbortController | undefined;

  constructor(
    readonly attempt: Holder,
    readonly choice: Choice,
    readonly holder: string,
  ) {
    this.key = attempt.key;
    this.mode = attempt.mode;
  }

  /** What the engine is asked, when this is asked of us. */
  request(asked: AcquireRequest, terms: PlacementTerms): AcquireRequest {
    return new PlacedRequest(asked, this, terms);
  }

  /** Sends a waiter away from an engine that grants no more. */
  withdraw(): void {
    this.#departed.abort();
  }

  /** Aborts when the attempt or its caller has left. Made when it is first read: see {@link AcquireRequest.signal}. */
  until(callerLeft: AbortSignal): AbortSignal {
    return AbortSignal.any([callerLeft, this.#departed.signal]);
  }

  get #departed(): AbortController {
    return (this.#departure ??= new AbortController());
  }
}

class PlacedRequest implements AcquireRequest {
  readonly key: string;
  readonly mode: Holder['mode'];
  readonly holder: string;
  readonly lease: number;
  readonly renew: boolean;
  readonly minHold: number;
  readonly options: AcquireRequest['options'];
  readonly #asked: AcquireRequest;
  readonly #placement: Placement;
  #signal: AbortSignal | undefined;

  constructor(asked: AcquireRequest, placement: Placement, terms: PlacementTerms) {
    this.key = placement.key;
    this.mode = placement.mode;
    this.holder = placement.holder;
    this.lease = terms.lease;
    this.renew = terms.renew;
    this.minHold = terms.minHold;
    this.options = asked.options;
    this.#asked = asked;
    this.#placement = placement;
  }

  get wait(): number {
    return this.#asked.wait;
  }

  get signal(): AbortSignal {
    return (this.#signal ??= this.#placement.until(this.#asked.signal));
  }
}
