import type { Clock, Timer } from '../../api/clock.js';
import { type Batcher, HEAVY } from './batcher.js';
import { type QueueEntry, releaseArguments } from './wire.js';

/** How often leaves without an answer are sent again, in ms. */
const RETRY = 1_000;
/** The server removes waiters of a process that has not asked for this long, in ms. */
const WAITERS_KEPT = 10_000;

interface PendingLeave {
  readonly entry: QueueEntry;
  readonly batcher: Batcher;
  /** When the server has removed it by itself, on the monotonic clock. */
  readonly until: number;
  isSent: boolean;
}

/**
 * Ids that have to leave the server's queue, and are released if they hold the lock. Sent again until acknowledged.
 *
 * The core repeats releases of attempts. It cannot repeat these: of waiters that were answered "busy" when their caller left, of members
 * of a cohort whose release was answered without the server, and of ids that the server remembers and this process does not.
 */
export class PendingLeaves {
  readonly #leaves = new Set<PendingLeave>();
  #timer: Timer | undefined;
  #isClosed = false;

  constructor(private readonly clock: Clock) {}

  add(entry: QueueEntry, batcher: Batcher): void {
    if (this.#isClosed) return;
    const leave = { entry, batcher, until: this.clock.now() + Math.max(entry.lease, WAITERS_KEPT), isSent: false };
    this.#leaves.add(leave);
    this.#send(leave);
    this.#retryLater();
  }

  /** Sends what is not in flight: the server can be reached again, or time has passed. */
  retry(): void {
    for (const leave of this.#leaves) {
      if (leave.isSent) continue;
      if (this.clock.now() > leave.until) this.#leaves.delete(leave);
      else this.#send(leave);
    }
  }

  close(): void {
    this.#isClosed = true;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#leaves.clear();
  }

  #send(leave: PendingLeave): void {
    const { entry, batcher } = leave;
    if (!batcher.isReachable) return;
    leave.isSent = true;
    batcher.add({
      lock: entry.lock,
      isAcquire: false,
      weight: HEAVY,
      encode: () => releaseArguments(entry, entry.provisional, 0),
      onReply: (reply) => {
        leave.isSent = false;
        if (reply === 0 || reply === 1) this.#leaves.delete(leave);
      },
      onFailure: () => {
        leave.isSent = false;
      },
    });
  }

  #retryLater(): void {
    this.#timer ??= this.clock.setTimer(() => {
      this.#timer = undefined;
      this.retry();
      if (this.#leaves.size > 0) this.#retryLater();
    }, RETRY);
  }
}
