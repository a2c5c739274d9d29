import type { AcquireRequest, BackendContext } from '../../api/lock-provider.js';
import { pause } from '../../core/toolkit/timing.js';
import type { RedlockNodes } from './nodes.js';
import { type RedlockGrant, Round } from './round.js';
import { Votes } from './votes.js';

// After a failed round, the request pauses for a random time within a window that doubles. A round takes about a
// millisecond, so requests that split the votes then retry at different times. A request that has waited a long time
// retries about eight times a second.
const FIRST_WINDOW = 16;
const LARGEST_WINDOW = 250;
// The last round starts this many ms before the wait ends, so as not to miss a key that becomes free near the end.
const LAST_ROUND = 20;

/** Requests a majority of the votes in rounds while its callers wait, then holds the grant. */
export class RedlockRequest {
  readonly votes = new Votes();
  grant: RedlockGrant | undefined;
  /** When the round in flight started (monotonic clock). */
  #roundStartedAt: number | undefined;
  #hasLeft = false;
  #isWaiting = false;
  #round: Round | undefined;
  #pausing: AbortController | undefined;

  constructor(
    private readonly context: BackendContext,
    readonly nodes: RedlockNodes,
    private readonly waiting: WaitingRequests,
    readonly lock: string,
    readonly request: AcquireRequest,
  ) {}

  /** @throws LockUnavailableError if no majority responds */
  async run(): Promise<RedlockGrant | 'busy'> {
    const { request } = this;
    this.#isWaiting = false;
    try {
      for (let failures = 0; !this.#hasLeft; failures += 1) {
        this.#round = new Round(this);
        this.#roundStartedAt = this.context.clock.now();
        const outcome = await this.#round.run();
        this.#roundStartedAt = undefined;
        if (outcome !== 'busy') this.grant = outcome;
        if (outcome !== 'busy' || request.wait <= 0) return outcome;
        this.#wait();
        await this.#pause(failures);
      }
      return 'busy';
    } finally {
      this.waiting.delete(this);
    }
  }

  /** How long the round in flight has been undecided, in ms. */
  get unansweredFor(): number {
    return this.#roundStartedAt === undefined ? 0 : this.context.clock.now() - this.#roundStartedAt;
  }

  /** Ends a pause because this process has just released the key. The next round then follows immediately. */
  retryNow(): void {
    this.#pausing?.abort();
  }

  /** Ends the request because its callers have left or its release is being sent. No further votes may be requested. */
  readonly leave = (): void => {
    this.#hasLeft = true;
    this.#round?.end();
    this.#pausing?.abort();
  };

  #wait(): void {
    if (this.#isWaiting || this.#hasLeft) return;
    this.#isWaiting = true;
    this.waiting.add(this);
    const { signal } = this.request;
    if (signal.aborted) this.leave();
    // A signal calls a listener once, however often it was added: each attempt of this request adds it again.
    else signal.addEventListener('abort', this.leave, { once: true });
    this.request.waits();
  }

  async #pause(failures: number): Promise<void> {
    if (this.#hasLeft) return;
    const { clock, random } = this.context;
    const window = Math.min(FIRST_WINDOW * 2 ** failures, LARGEST_WINDOW);
    const delay = 1 + random.fraction() * window;
    const untilLast = this.request.wait - LAST_ROUND;
    this.#pausing = new AbortController();
    await pause(clock, untilLast > 0 ? Math.min(delay, untilLast) : delay, this.#pausing.signal);
  }
}

/**
 * The requests that found their lock busy and are retrying. There may be several per key: the core creates one for each
 * distinct number of other keys held.
 */
export class WaitingRequests {
  readonly #byLock = new Map<string, Set<RedlockRequest>>();

  add(own: RedlockRequest): void {
    const others = this.#byLock.get(own.lock);
    if (others) others.add(own);
    else this.#byLock.set(own.lock, new Set([own]));
  }

  delete(own: RedlockRequest): void {
    const all = this.#byLock.get(own.lock);
    all?.delete(own);
    if (all?.size === 0) this.#byLock.delete(own.lock);
  }

  /** Ends the pauses for a lock that this process has just released. */
  retryNow(lock: string): void {
    for (const own of this.#byLock.get(lock) ?? []) own.retryNow();
  }

  /** Ends all requests, so no callers are left waiting. */
  close(): void {
    for (const all of this.#byLock.values()) for (const own of all) own.leave();
  }
}
