import type { Waiter } from './waiter.js';

/**
 * The waiters of one queue, oldest first. It's a linked list because any of thousands of waiters can leave at any time.
 */
export class WaiterList {
  head: Waiter | undefined;
  #tail: Waiter | undefined;
  size = 0;
  /** The number of late waiters: see {@link Waiter}. */
  late = 0;
  /** How many waiters have joined so far. */
  arrivals = 0;

  /** A snapshot, because waiters may leave during the iteration. */
  all(): readonly Waiter[] {
    const waiters: Waiter[] = [];
    for (let waiter = this.head; waiter !== undefined; waiter = waiter.next) waiters.push(waiter);
    return waiters;
  }

  add(waiter: Waiter): void {
    const last = this.#tail;
    waiter.previous = last;
    this.#tail = waiter;
    if (last) last.next = waiter;
    else this.head = waiter;
    this.arrivals += 1;
    waiter.arrival = this.arrivals;
    waiter.isQueued = true;
    this.size += 1;
    if (waiter.isLate) this.late += 1;
  }

  remove(waiter: Waiter): void {
    if (waiter.previous) waiter.previous.next = waiter.next;
    else this.head = waiter.next;
    if (waiter.next) waiter.next.previous = waiter.previous;
    else this.#tail = waiter.previous;
    waiter.previous = undefined;
    waiter.next = undefined;
    waiter.isQueued = false;
    waiter.clearTimer();
    this.size -= 1;
    if (waiter.isLate) this.late -= 1;
  }

  /** Sets whether a waiter is waiting only for the pending response. */
  setLate(waiter: Waiter, isLate: boolean): void {
    if (waiter.isLate === isLate) return;
    waiter.isLate = isLate;
    this.late += isLate ? 1 : -1;
  }
}
