import type { Timer } from '../../api/clock.js';
import { detached } from './detached.js';
import { clearTimeout, monotonicNow, nextTick, setTimeout } from './real-timers.js';

// How many cleared timers may stay in the heap, in addition to twice the number of active ones.
const MAX_CLEARED = 64;

// 24.8 days. A longer Node timer overflows and fires immediately.
const MAX_DELAY_MS = 2 ** 31 - 1;

interface Entry {
  /** When the timer is due, on the monotonic clock. */
  readonly at: number;
  readonly keepsAlive: boolean;
  /** Undefined once the timer has fired or been cleared, so it no longer retains what the callback closes over. */
  callback: (() => void) | undefined;
}

/**
 * Runs any number of timers on a single Node timer. Each lock sets and clears two timers, which almost never fire;
 * with Node timers, that took a quarter of an uncontended in-memory lock's time. Clearing a timer doesn't touch the
 * Node timer, which later fires and finds nothing due.
 *
 * Callbacks run detached. As with Node's timers, all promise jobs of one callback run before the next callback.
 */
export class Timers {
  /** A binary min-heap by due time. Cleared entries are removed lazily. */
  #heap: Entry[] = [];
  /** The number of active timers. */
  #set = 0;
  /** How many active timers keep the process alive. */
  #keepers = 0;
  #armed: NodeJS.Timeout | undefined;
  #armedAt = Infinity;

  /** Delays are capped at 24.8 days. */
  set(callback: () => void, delay: number, keepsAlive: boolean): Timer {
    const wait = Math.min(delay, MAX_DELAY_MS);
    const entry: Entry = { at: monotonicNow() + wait, keepsAlive, callback };
    this.#push(entry);
    this.#set += 1;
    if (keepsAlive) this.#keepers += 1;
    if (entry.at < this.#armedAt) this.#arm(entry.at, wait);
    else if (keepsAlive && this.#keepers === 1) this.#armed?.ref();
    return entry;
  }

  clear(timer: Timer): void {
    const entry = timer as Entry;
    if (entry.callback === undefined) return;
    this.#end(entry);
    if (this.#heap.length > MAX_CLEARED + 2 * this.#set) {
      // A sorted array is a heap.
      this.#heap = this.#heap.filter(isSet).sort((one, other) => one.at - other.at);
    }
  }

  /**
   * Clears the Node timer if no timer is active. Called when an application shuts down, so that nothing is left behind.
   */
  disarmIfIdle(): void {
    if (this.#set > 0) return;
    this.#heap = [];
    this.#disarm();
  }

  #end(entry: Entry): void {
    entry.callback = undefined;
    this.#set -= 1;
    if (!entry.keepsAlive) return;
    this.#keepers -= 1;
    if (this.#keepers === 0) this.#armed?.unref();
  }

  #arm(at: number, delay: number): void {
    this.#disarm();
    this.#armedAt = at;
    this.#armed = detached<[() => void, number], NodeJS.Timeout>(setTimeout, this.#onTime, delay);
    if (this.#keepers === 0) this.#armed.unref();
  }

  #disarm(): void {
    if (this.#armed !== undefined) clearTimeout(this.#armed);
    this.#armed = undefined;
    this.#armedAt = Infinity;
  }

  readonly #onTime = (): void => {
    // Node may fire a fraction of a millisecond early. Without this correction, the timer would be rearmed for the
    // remainder.
    const due = Math.max(monotonicNow(), this.#armedAt);
    this.#disarm();
    this.#runDue(due);
  };

  /** Calls the first callback that is due. The rest run after the promise jobs that it creates. */
  #runDue(due: number): void {
    const entry = this.#firstSet();
    if (entry === undefined) return;
    if (entry.at > due) {
      if (entry.at < this.#armedAt) this.#arm(entry.at, Math.max(1, Math.ceil(entry.at - monotonicNow())));
      return;
    }
    const { callback } = entry;
    this.#end(entry);
    // Continues after the callback's promise jobs, even if the callback throws. nextTick() alone would run before them,
    // and queueMicrotask() may be replaced by fake timers.
    void Promise.resolve().then(() => {
      nextTick(this.#run, due);
    });
    callback?.();
  }

  readonly #run = (due: number): void => {
    this.#runDue(due);
  };

  /** The active timer that is due first. Removes any cleared timers ahead of it. */
  #firstSet(): Entry | undefined {
    while (this.#heap[0] !== undefined && !isSet(this.#heap[0])) this.#removeFirst();
    return this.#heap[0];
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let place = heap.length;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = heap[above] as Entry;
      if (parent.at <= entry.at) break;
      heap[place] = parent;
      place = above;
    }
    heap[place] = entry;
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop() as Entry;
    const { length } = heap;
    if (length === 0) return;
    let place = 0;
    for (;;) {
      let below = 2 * place + 1;
      if (below >= length) break;
      if (below + 1 < length && (heap[below + 1] as Entry).at < (heap[below] as Entry).at) below += 1;
      if ((heap[below] as Entry).at >= last.at) break;
      heap[place] = heap[below] as Entry;
      place = below;
    }
    heap[place] = last;
  }
}

function isSet({ callback }: Entry): boolean {
  return callback !== undefined;
}
