/** An event that happens at a moment of true time, unless it is canceled first. */
export interface WorldEvent {
  readonly at: number;
  readonly order: number;
  run: (() => void) | undefined;
}

/**
 * True time, in ms: a heap of events. Nothing in the world happens outside an event, so a run depends only on its seed.
 */
export class Timeline {
  #now = 0;
  #order = 0;
  #events = 0;
  readonly #heap: WorldEvent[] = [];

  get now(): number {
    return this.#now;
  }

  /** The number of events that have happened. */
  get events(): number {
    return this.#events;
  }

  at(time: number, run: () => void): WorldEvent {
    const event = { at: Math.max(time, this.#now), order: (this.#order += 1), run };
    const heap = this.#heap;
    let place = heap.length;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = heap[parent] as WorldEvent;
      if (!isBefore(event, above)) break;
      heap[place] = above;
      place = parent;
    }
    heap[place] = event;
    return event;
  }

  in(delay: number, run: () => void): WorldEvent {
    return this.at(this.#now + delay, run);
  }

  cancel(event: WorldEvent): void {
    event.run = undefined;
  }

  /** Lets time pass until `end`. After each event, all resulting promise jobs and ticks run. */
  async runUntil(end: number, isOver: () => boolean = () => false): Promise<void> {
    await settled();
    for (let next = this.#heap[0]; next !== undefined && next.at <= end && !isOver(); next = this.#heap[0]) {
      this.#removeFirst();
      const { run } = next;
      if (run === undefined) continue;
      next.run = undefined;
      this.#now = next.at;
      this.#events += 1;
      run();
      await settled();
    }
    if (!isOver()) this.#now = Math.max(this.#now, end);
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop() as WorldEvent;
    if (heap.length === 0) return;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= heap.length) break;
      const right = heap[child + 1];
      if (right !== undefined && isBefore(right, heap[child] as WorldEvent)) child += 1;
      const below = heap[child] as WorldEvent;
      if (!isBefore(below, last)) break;
      heap[place] = below;
      place = child;
    }
    heap[place] = last;
  }
}

function isBefore(one: WorldEvent, other: WorldEvent): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order);
}

// Between two immediates, Node runs all promise jobs and ticks, including those that they add.
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** What happened, as a hash and, if requested, in words. */
export class Story {
  readonly lines: string[] = [];
  #hash = 0x811c9dc5;

  constructor(
    private readonly timeline: Timeline,
    private readonly keepsLines: boolean,
  ) {}

  /** Equal for two runs with the same events. */
  get hash(): string {
    return (this.#hash >>> 0).toString(16).padStart(8, '0');
  }

  note(what: string): void {
    const line = `${this.timeline.now.toFixed(3)} ${what}`;
    for (let index = 0; index < line.length; index += 1) {
      this.#hash = Math.imul(this.#hash ^ line.charCodeAt(index), 0x01000193);
    }
    if (this.keepsLines) this.lines.push(line);
  }
}
