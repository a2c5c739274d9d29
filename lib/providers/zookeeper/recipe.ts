import type { LimitShare, LockMode } from '../../api/lock-mode.js';

/** A queue node, parsed from its name. */
interface QueuedNode {
  readonly name: string;
  readonly mode: LockMode;
  /** For limited nodes. */
  readonly terms: LimitShare | undefined;
  /** The sort key. */
  readonly text: string;
}

/** A node's position in the queue. */
export interface QueuePosition {
  readonly isHeld: boolean;
  /** The node whose change may admit this one. Undefined for a holder, or for a waiter that any departure may admit. */
  readonly behind?: string;
  /** The node whose zxid is the token: the holder's own, or the first reader's if several read concurrently. */
  readonly first: string;
  /** Whether the next node may be watching this one, to learn when this one becomes a holder. */
  readonly isAwaited: boolean;
  /** For a waiter: the nodes that hold the lock, in order. */
  readonly holders?: readonly string[];
}

/**
 * The server appends a 10-digit, signed 32-bit count of all children ever created in the folder. Locking stops before
 * the count overflows, because negative numbers would sort first.
 */
export const LAST_SEQUENCE = 2 ** 31 - 1_000_000;

const READ = '__READ__';
const WRITE = '__WRIT__';
const MUTEX = 'lock-';

/**
 * The node names in a lock's queue and their order, as defined by Apache Curator.
 *
 * A limited node has an exclusive node's marker after its limit and weight, so Curator treats it as exclusive. Limited
 * nodes are admitted in order while their total weight is at most their smallest limit. The holders are therefore
 * always the first nodes, and a holder stays a holder regardless of which nodes come and go. Every process computes the
 * same result from the same names.
 */
class Recipe {
  readonly #limited: RegExp;

  constructor(
    private readonly exclusive: string,
    private readonly shared?: string,
  ) {
    this.#limited = new RegExp(`-limit-(\\d+)-(\\d+)-${exclusive}-?\\d+$`);
  }

  /** The part of a node's name between its id and its sequence number. */
  markerOf(mode: LockMode, limited?: LimitShare): string {
    if (limited) return `limit-${limited.limit}-${limited.weight}-${this.exclusive}`;
    return mode === 'shared' && this.shared !== undefined ? this.shared : this.exclusive;
  }

  /** A node's position among the children of the lock's folder, which must include the node. */
  positionOf(own: string, names: readonly string[]): QueuePosition {
    const queue = this.#queueOf(names);
    const index = queue.findIndex(({ name }) => name === own);
    const mode = this.modeOf(own);
    if (mode === 'limited') return this.#limitedPosition(queue, index);
    const before = queue.slice(0, index);
    // Curator's readers watch the first writer. Watching the last writer before us saves wake-ups, because it leaves
    // after the others.
    const behind = mode === 'shared' ? before.findLast(keepsReadersOut) : before.at(-1);
    return behind
      ? { isHeld: false, behind: behind.name, first: own, isAwaited: false, holders: namesOf(holdersIn(queue)) }
      : { isHeld: true, first: queue[0]?.name ?? own, isAwaited: false };
  }

  /** The nodes that hold the lock, in order. */
  holdersOf(names: readonly string[]): readonly string[] {
    return namesOf(holdersIn(this.#queueOf(names)));
  }

  modeOf(name: string): LockMode {
    return this.#nodeOf(name).mode;
  }

  /** A limited lock's usage; undefined for other modes. */
  usageOf(holders: readonly string[]): { readonly limit: number; readonly used: number } | undefined {
    const terms = holders.flatMap((name) => this.#nodeOf(name).terms ?? []);
    if (terms.length === 0) return undefined;
    return {
      limit: Math.min(...terms.map(({ limit }) => limit)),
      used: terms.reduce((sum, { weight }) => sum + weight, 0),
    };
  }

  #limitedPosition(queue: readonly QueuedNode[], index: number): QueuePosition {
    const { name: first } = queue[index] as QueuedNode;
    const holders = holdersIn(queue);
    if (index < holders.length) {
      return { isHeld: true, first, isAwaited: queue[index + 1]?.mode === 'limited' };
    }
    const previous = queue[index - 1];
    // The first waiter behind limited holders waits for any of them to leave. All others watch one node, so a departure
    // wakes only one waiter.
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

  // As in Curator, a name without the marker is sorted by its whole text, so it sorts after the digits if it begins
  // with a letter.
  #textOf(name: string): string {
    return after(this.exclusive, this.shared === undefined ? name : after(this.shared, name));
  }
}

export type { Recipe };

/** `InterProcessMutex`: sorted by the text after the last `lock-`. */
export const mutex = new Recipe(MUTEX);

/** `InterProcessReadWriteLock`: sorted by the text after `__READ__` or `__WRIT__`. Readers wait only for writers. */
export const readWrite = new Recipe(WRITE, READ);

/** The sequence number appended by the server: ten characters, the first of which may be a sign. */
export function sequenceOf(name: string): number {
  // A marker may also end with a hyphen.
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

/** How many nodes at the head of the queue hold a limited lock. */
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
  // In newer versions of Curator, a writer that also reads adds a reader node with its own sequence number
  // (CURATOR-621).
  if (one.name.includes(WRITE) !== other.name.includes(WRITE)) return one.name.includes(WRITE);
  return one.name < other.name;
}
