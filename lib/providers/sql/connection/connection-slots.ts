import type { Clock } from '../../../api/clock.js';
import type { LockCapacityError } from '../../../api/errors.js';
import { pause } from '../../../core/toolkit/timing.js';

/** A need for a connection, until the signal aborts, or without one for `wait` ms. */
export interface ConnectionRequest {
  readonly wait: number;
  readonly signal?: AbortSignal;
  readonly key?: string;
  /** Called when it has to wait; a caller that leaves gets this error. */
  waits?(instead: LockCapacityError): void;
  /** How many locks of this provider its caller holds already. */
  readonly otherKeysHeld?: number;
}

/**
 * A limited number of connections, in the order of the requests.
 *
 * A caller that holds a lock keeps its connection until its nested locks are done. If such callers had all connections, none of them
 * would progress. So the last `reserved` ones are for nested requests: the first `n` of them for callers that hold `n` locks. And no waiter
 * has the last connection that a request may have, so that a key that is free can be had while others are waited for.
 */
export class ConnectionSlots {
  readonly #waiting = new Set<{ readonly limit: number; readonly served: AbortController }>();
  #used = 0;

  constructor(
    private readonly clock: Clock,
    private readonly most: number,
    private readonly reserved: number,
  ) {}

  /** Takes a connection if one is free. */
  takeNow(request: ConnectionRequest): boolean {
    if (this.#used >= this.#limitOf(request)) return false;
    this.#used += 1;
    return true;
  }

  /** Takes a connection. @throws LockCapacityError, which `exhausted` makes, when none was free in the time of the request */
  async take(request: ConnectionRequest, exhausted: (key: string | undefined) => LockCapacityError): Promise<void> {
    if (this.takeNow(request)) return;
    const limit = this.#limitOf(request);
    if (request.wait <= 0) throw exhausted(request.key);
    const served = new AbortController();
    const waiter = { limit, served };
    this.#waiting.add(waiter);
    request.waits?.(exhausted(request.key));
    // A signal is made when it is read. It aborts when nobody waits any more, which may be later than `wait` says: others may have come.
    const { signal } = request;
    const end = signal ? AbortSignal.any([signal, served.signal]) : served.signal;
    await pause(this.clock, signal ? Infinity : request.wait, end);
    this.#waiting.delete(waiter);
    if (!served.signal.aborted) throw exhausted(request.key);
  }

  /** Whether a request that has a connection may keep it while it waits for a lock. */
  mayWait(request: ConnectionRequest): boolean {
    return this.#used < Math.max(2, this.#limitOf(request));
  }

  free(): void {
    this.#used -= 1;
    for (const waiter of this.#waiting) {
      if (this.#used >= waiter.limit) continue;
      this.#used += 1;
      this.#waiting.delete(waiter);
      waiter.served.abort();
      return;
    }
  }

  #limitOf({ otherKeysHeld = 0 }: ConnectionRequest): number {
    return this.most - Math.max(0, this.reserved - otherKeysHeld);
  }
}
