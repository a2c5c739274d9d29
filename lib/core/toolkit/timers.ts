import type { Timer } from '../../api/clock.js';
import { detached } from './detached.js';
import { clearTimeout, monotonicNow, nextTick, setTimeout } from './real-timers.js';

// So many cleared timers are kept beside those that are set.
const MOST_CLEARED = 64;

/** A longer timer of Node fires immediately, in ms: 24.8 days. */
const LONGEST = 2 ** 31 - 1;

interface Entry {
  /** When it is due, on the monotonic clock. */
  readonly at: number;
  readonly keepsAlive: boolean;
  /** Undefined when it has fired or was cleared: it would keep what it closes over. */
  callback: (() => void) | undefined;
}

/**
 * Any number of timers on one of Node. Each lock sets and clears two, of which nearly none fires: two of Node took a quarter of the time of an
 * uncontended lock in memory. A cleared timer leaves the one of Node as it is. That finds later that nothing is due.
 *
 * Callbacks run in no caller's async context. As with timers of Node, all promise jobs of one callback run before the next callback.
 */
export class Timers {
  /** A binary heap: each is due no later than the two at twice its index. Cleared ones leave it later. */
  #heap: Entry[] = [];
  /** How many of them are set. */
  #set = 0;
  /** How many of these keep the process alive. */
  #keepers = 0;
  #armed: NodeJS.Timeout | undefined;
  #armedAt = Infinity;

  /** A delay of more than 24.8 days is one of 24.8 days. */
  set(callback: () => void, delay: number, keepsAlive: boolean): Timer {
    const wait = Math.min(delay, LONGEST);
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
    if (this.#heap.length > MOST_CLEARED + 2 * this.#set) {
      // A sorted array is a heap.
      this.#heap = this.#heap.filter(isSet).sort((one, other) => one.at - other.at);
    }
  }

  /** Disarms the timer of Node if no timer is set. For the end of an application, after which nothing of it may be left. */
  rest(): void {
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
    // The timer may have fired a fraction of a millisecond early, and would be armed again for that.
    const due = Math.max(monotonicNow(), this.#armedAt);
    this.#disarm();
    this.#runDue(due);
  };

  /** Calls the first that is due, and the others behind the promise jobs of that. */
  #runDue(due: number): void {
    const entry = this.#firstSet();
    if (entry === undefined) return;
    if (entry.at > due) {
      if (entry.at < this.#armedAt) this.#arm(entry.at, Math.max(1, Math.ceil(entry.at - monotonicNow())));
      return;
    }
    const { callback } = entry;
    this.#end(entry);
    // Behind its promise jobs, also if it throws. A tick alone would come before them, and queueMicrotask() is one of the functions that fake timers
    // replace.
    void Promise.resolve().then(() => {
      nextTick(this.#run, due);
    });
    callback?.();
  }

  readonly #run = (due: number): void => {
    this.#runDue(due);
  };

  /** The next one that is due, without those before it that were cleared. */
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
