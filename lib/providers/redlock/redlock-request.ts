import type { AcquireRequest, BackendContext } from '../../api/lock-provider.js';
import { pause } from '../../core/toolkit/timing.js';
import type { RedlockNodes } from './nodes.js';
import { type RedlockGrant, Round } from './round.js';
import { Votes } from './votes.js';

// The pause after a round without a winner is drawn from a window that doubles: requests that have split the votes come back at
// different times, since a round takes about a millisecond; and a caller that waits for long asks some eight times a second.
const FIRST_WINDOW = 16;
const LARGEST_WINDOW = 250;
// The last round of a wait begins this many ms before its end, so that a key which became free by then is not missed.
const LAST_ROUND = 20;

/** One request for a majority of the votes, in as many rounds as it takes while its callers wait; then what it was granted. */
export class RedlockRequest {
  readonly votes = new Votes();
  grant: RedlockGrant | undefined;
  /** When the round in flight began, on the monotonic clock. */
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

  /** @throws LockUnavailableError when a majority does not answer. */
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

  /** For how many ms a majority has not answered the round in flight. */
  get unansweredFor(): number {
    return this.#roundStartedAt === undefined ? 0 : this.context.clock.now() - this.#roundStartedAt;
  }

  /** The key was just released in this process: ask directly behind the release, if it pauses. */
  retryNow(): void {
    this.#pausing?.abort();
  }

  /** The caller has left, or its release is sent: no further vote may be asked for. */
  leave(): void {
    this.#hasLeft = true;
    this.#round?.end();
    this.#pausing?.abort();
  }

  #wait(): void {
    if (this.#isWaiting || this.#hasLeft) return;
    this.#isWaiting = true;
    this.waiting.add(this);
    const { signal } = this.request;
    const leave = () => {
      this.leave();
    };
    if (signal.aborted) leave();
    else signal.addEventListener('abort', leave, { once: true });
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

/** The requests that have found their lock busy and ask again: the core makes one request per key and number of other keys held. */
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

  /** The lock was just released in this process: they ask directly behind the release. */
  retryNow(lock: string): void {
    for (const own of this.#byLock.get(lock) ?? []) own.retryNow();
  }

  /** No caller is left waiting. */
  close(): void {
    for (const all of this.#byLock.values()) for (const own of all) own.leave();
  }
}
