import type { LimitShare, LockMode } from '../../api/lock-mode.js';

/** A node of the queue, as its name describes it. */
interface QueuedNode {
  readonly name: string;
  readonly mode: LockMode;
  /** Of a limited node. */
  readonly terms: LimitShare | undefined;
  /** By which the queue is sorted. */
  readonly text: string;
}

/** The place of a node in the queue. */
export interface Place {
  readonly isHeld: boolean;
  /** The node whose departure or entry may admit this one. Undefined for a holder, and for a waiter that any departure may admit. */
  readonly behind?: string;
  /** Of a holder: the node whose creation gives the token. It is its own, or that of the first of the readers that hold together. */
  readonly first: string;
  /** Of a limited holder: whether the node behind it may wait until it has entered. */
  readonly isAwaited: boolean;
  /** Of a waiter: the nodes that hold the lock, in their order. */
  readonly holders?: readonly string[];
}

/**
 * The 10 digits that the server appends count the children that the folder has had, in 32 bits with a sign; the lock stops
 * before that, since negative numbers sort first.
 */
export const LAST_SEQUENCE = 2 ** 31 - 1_000_000;

const READ = '__READ__';
const WRITE = '__WRIT__';
const MUTEX = 'lock-';

/**
 * The order of a lock's queue, as Apache Curator defines it: the names of the nodes, and which node precedes which.
 *
 * A limited node has the marker of an exclusive one, behind its limit and its weight, so Curator's locks take it for that. Limited nodes
 * enter in their order while their weights are at most the smallest of their limits, so the holders are always the first nodes, and a holder
 * stays one whatever node comes or goes. Each process computes the same from one list of names.
 */
class Recipe {
  readonly #limited: RegExp;

  constructor(
    private readonly exclusive: string,
    private readonly shared?: string,
  ) {
    this.#limited = new RegExp(`-limit-(\\d+)-(\\d+)-${exclusive}-?\\d+$`);
  }

  /** The text between the id and the sequence number in the name of a node. */
  markerOf(mode: LockMode, limited?: LimitShare): string {
    if (limited) return `limit-${limited.limit}-${limited.weight}-${this.exclusive}`;
    return mode === 'shared' && this.shared !== undefined ? this.shared : this.exclusive;
  }

  /** Where a node is among the children of the lock's folder, of which it is one. */
  placeOf(own: string, names: readonly string[]): Place {
    const queue = this.#queueOf(names);
    const index = queue.findIndex(({ name }) => name === own);
    const mode = this.modeOf(own);
    if (mode === 'limited') return this.#limitedPlace(queue, index);
    const before = queue.slice(0, index);
    // Curator's readers watch the first writer. The last writer before us goes after it, so one wake-up is enough.
    const behind = mode === 'shared' ? before.findLast(keepsReadersOut) : before.at(-1);
    return behind
      ? { isHeld: false, behind: behind.name, first: own, isAwaited: false, holders: namesOf(holdersIn(queue)) }
      : { isHeld: true, first: queue[0]?.name ?? own, isAwaited: false };
  }

  /** The nodes that hold the lock, in their order. */
  holdersOf(names: readonly string[]): readonly string[] {
    return namesOf(holdersIn(this.#queueOf(names)));
  }

  modeOf(name: string): LockMode {
    return this.#nodeOf(name).mode;
  }

  /** How much of which limit these limited holders take; undefined for others. */
  usageOf(holders: readonly string[]): { readonly limit: number; readonly used: number } | undefined {
    const terms = holders.flatMap((name) => this.#nodeOf(name).terms ?? []);
    if (terms.length === 0) return undefined;
    return {
      limit: Math.min(...terms.map(({ limit }) => limit)),
      used: terms.reduce((sum, { weight }) => sum + weight, 0),
    };
  }

  #limitedPlace(queue: readonly QueuedNode[], index: number): Place {
    const { name: first } = queue[index] as QueuedNode;
    const holders = holdersIn(queue);
    if (index < holders.length) {
      return { isHeld: true, first, isAwaited: queue[index + 1]?.mode === 'limited' };
    }
    const previous = queue[index - 1];
    // Behind limited holders any of them may go. All other waiters have one node to watch, so that a departure wakes one.
    if (index === holders.length && previous?.mode === 'limited') {
      return { isHeld: false, first, isAwaited: false, holders: namesOf(holders) };
    }
    const behind = previous && { behind: previous.name };
    return { isHeld: false, ...behind, first, isAwaited: false, holders: namesOf(holders) };
  }

  #queueOf(names: readonly string[]): readonly QueuedNode[] {
    return names.map((name) => this.#nodeOf(name)).sort((one, other) => (isBefore(one, other) ? -1 : 1));
  }

  #nodeOf(name: string): QueuedNode {
    if (this.shared !== undefined && name.includes(this.shared)) {
      return { name, mode: 'shared', terms: undefined, text: this.#textOf(name) };
    }
    const found = this.#limited.exec(name);
    const terms = found ? { limit: Number(found[1]), weight: Number(found[2]) } : undefined;
    return { name, mode: terms ? 'limited' : 'exclusive', terms, text: this.#textOf(name) };
  }

  // A name without the marker is ordered by all of its text, as in Curator: after the digits, if it begins with a letter.
  #textOf(name: string): string {
    return after(this.exclusive, this.shared === undefined ? name : after(this.shared, name));
  }
}

export type { Recipe };

/** `InterProcessMutex`: ordered by the text after the last `lock-`. */
export const mutex = new Recipe(MUTEX);

/** `InterProcessReadWriteLock`: ordered by the text after `__READ__` or `__WRIT__`; readers wait only for writers. */
export const readWrite = new Recipe(WRITE, READ);

/** The number that the server has appended: ten characters, of which the first may be a sign. */
export function sequenceOf(name: string): number {
  // A marker may itself end with a hyphen.
  return Number(/(?:-|__)(-?\d{9,})$/.exec(name)?.[1]);
}

function namesOf(nodes: readonly QueuedNode[]): readonly string[] {
  return nodes.map(({ name }) => name);
}

function holdersIn(queue: readonly QueuedNode[]): readonly QueuedNode[] {
  const [first] = queue;
  if (first?.mode === 'limited') return queue.slice(0, admittedIn(queue));
  if (first?.mode !== 'shared') return queue.slice(0, 1);
  const end = queue.findIndex(keepsReadersOut);
  return queue.slice(0, end < 0 ? queue.length : end).filter(({ mode }) => mode === 'shared');
}

/** How many of the first nodes hold, all limited. */
function admittedIn(queue: readonly QueuedNode[]): number {
  let used = 0;
  let smallest = Infinity;
  for (const [index, { terms }] of queue.entries()) {
    if (!terms) return index;
    used += terms.weight;
    smallest = Math.min(smallest, terms.limit);
    if (used > smallest) return index;
  }
  return queue.length;
}

const after = (marker: string, name: string): string => {
  const at = name.lastIndexOf(marker);
  return at < 0 ? name : name.slice(at + marker.length);
};

const keepsReadersOut = ({ name }: QueuedNode): boolean => name.includes(WRITE);

function isBefore(one: QueuedNode, other: QueuedNode): boolean {
  if (one.text !== other.text) return one.text < other.text;
  // A writer of newer Curators that reads as well has a reader's node of its own number (CURATOR-621).
  if (one.name.includes(WRITE) !== other.name.includes(WRITE)) return one.name.includes(WRITE);
  return one.name < other.name;
}
