import type { LockMode } from '../../api/lock-options.js';

/** The order of a lock's queue, as Apache Curator defines it: the names of the nodes, and which node precedes which. */
export interface Recipe {
  /** The text between the id and the sequence number in the name of a node. */
  markerOf(mode: LockMode): string;
  /** For which node a node has to wait, among these children of the lock's folder. */
  placeOf(own: string, names: readonly string[]): Place;
  /** The nodes that hold the lock. */
  holdersOf(names: readonly string[]): readonly string[];
  modeOf(name: string): LockMode;
}

interface Place {
  /** The last of the nodes to wait for; when it goes, it is time to look again. Undefined for a holder. */
  readonly behind: string | undefined;
  /** The first of all nodes. Readers that hold together have the same first node. */
  readonly first: string;
}

/**
 * The 10 digits that the server appends count the children that the folder has had, in 32 bits with a sign; the lock stops
 * before that, since negative numbers sort first.
 */
export const LAST_SEQUENCE = 2 ** 31 - 1_000_000;

const READ = '__READ__';
const WRITE = '__WRIT__';
const MUTEX = 'lock-';

/** `InterProcessMutex`: ordered by the text after the last `lock-`. */
export const mutex: Recipe = {
  markerOf: () => MUTEX,
  placeOf: (own, names) => ({ behind: lastBefore(own, names, afterLock), first: firstOf(names, afterLock) ?? own }),
  holdersOf: (names) => {
    const first = firstOf(names, afterLock);
    return first === undefined ? [] : [first];
  },
  modeOf: () => 'exclusive',
};

/** `InterProcessReadWriteLock`: ordered by the text after `__READ__` or `__WRIT__`; readers wait only for writers. */
export const readWrite: Recipe = {
  markerOf: (mode) => (mode === 'shared' ? READ : WRITE),
  placeOf: (own, names) => {
    // Curator's readers watch the first writer. The last writer before us goes after it, so one wake-up is enough.
    const blocking = isReader(own) ? names.filter(isWriter) : names;
    return { behind: lastBefore(own, blocking, afterReadOrWrite), first: firstOf(names, afterReadOrWrite) ?? own };
  },
  holdersOf: (names) => {
    const first = firstOf(names, afterReadOrWrite);
    if (first === undefined) return [];
    const readers = names.filter(isReader).filter((name) => readWrite.placeOf(name, names).behind === undefined);
    return isReader(first) ? readers : [first];
  },
  modeOf: (name) => (isReader(name) ? 'shared' : 'exclusive'),
};

/** The number that the server has appended: ten characters, of which the first may be a sign. */
export function sequenceOf(name: string): number {
  // A marker may itself end with a hyphen.
  return Number(/(?:-|__)(-?\d{9,})$/.exec(name)?.[1]);
}

const isReader = (name: string): boolean => name.includes(READ);
const isWriter = (name: string): boolean => name.includes(WRITE);

// A name without the marker is ordered by all of its text, as in Curator: after the digits, if it begins with a letter.
const after = (marker: string, name: string): string => {
  const at = name.lastIndexOf(marker);
  return at < 0 ? name : name.slice(at + marker.length);
};
const afterLock = (name: string): string => after(MUTEX, name);
const afterReadOrWrite = (name: string): string => after(WRITE, after(READ, name));

function lastBefore(own: string, names: readonly string[], textOf: (name: string) => string): string | undefined {
  let last: string | undefined;
  for (const name of names) {
    if (isBefore(name, own, textOf) && (last === undefined || isBefore(last, name, textOf))) last = name;
  }
  return last;
}

function firstOf(names: readonly string[], textOf: (name: string) => string): string | undefined {
  let first: string | undefined;
  for (const name of names) if (first === undefined || isBefore(name, first, textOf)) first = name;
  return first;
}

function isBefore(one: string, other: string, textOf: (name: string) => string): boolean {
  if (one === other) return false;
  const [text, otherText] = [textOf(one), textOf(other)];
  if (text !== otherText) return text < otherText;
  // A writer of newer Curators that reads as well has a reader's node of its own number (CURATOR-621).
  if (isWriter(one) !== isWriter(other)) return isWriter(one);
  return one < other;
}
