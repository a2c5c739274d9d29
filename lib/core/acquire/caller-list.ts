import type { RequestCaller } from './key-request.js';

/** The callers of one queue, the oldest first. A linked list, because any of thousands may leave. */
export class CallerList {
  head: RequestCaller | undefined;
  #tail: RequestCaller | undefined;
  /** How many there are. */
  size = 0;
  /** How many of them are late. */
  late = 0;
  /** How many have come so far. */
  arrivals = 0;

  /** All as they are now: each may leave meanwhile. */
  all(): readonly RequestCaller[] {
    const callers: RequestCaller[] = [];
    for (let caller = this.head; caller !== undefined; caller = caller.next) callers.push(caller);
    return callers;
  }

  add(caller: RequestCaller): void {
    const last = this.#tail;
    caller.previous = last;
    this.#tail = caller;
    if (last) last.next = caller;
    else this.head = caller;
    this.arrivals += 1;
    caller.arrival = this.arrivals;
    caller.isQueued = true;
    this.size += 1;
    if (caller.isLate) this.late += 1;
  }

  remove(caller: RequestCaller): void {
    if (caller.previous) caller.previous.next = caller.next;
    else this.head = caller.next;
    if (caller.next) caller.next.previous = caller.previous;
    else this.#tail = caller.previous;
    caller.previous = undefined;
    caller.next = undefined;
    caller.isQueued = false;
    caller.clearTimer();
    this.size -= 1;
    if (caller.isLate) this.late -= 1;
  }

  /** Whether it waits only for the answer that is in flight. */
  setLate(caller: RequestCaller, isLate: boolean): void {
    if (caller.isLate === isLate) return;
    caller.isLate = isLate;
    this.late += isLate ? 1 : -1;
  }
}
