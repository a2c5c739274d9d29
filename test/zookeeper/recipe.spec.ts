import { mutex, readWrite, sequenceOf } from '../../lib/providers/zookeeper/recipe.js';

const named = (marker: string, sequence: number, id = 'a') =>
  `_c_${id.repeat(8)}-1111-1111-1111-111111111111-${marker}${String(sequence).padStart(10, '0')}`;
const lock = (sequence: number, id?: string) => named('lock-', sequence, id);
const read = (sequence: number, id?: string) => named('__READ__', sequence, id);
const write = (sequence: number, id?: string) => named('__WRIT__', sequence, id);

describe("The order of Curator's InterProcessMutex", () => {
  it('is that of the numbers, whatever the ids are', () => {
    const names = [lock(12, 'a'), lock(3, 'f'), lock(7, 'b')];
    expect(mutex.positionOf(lock(3, 'f'), names).behind).toBeUndefined();
    expect(mutex.positionOf(lock(7, 'b'), names).behind).toBe(lock(3, 'f'));
    expect(mutex.positionOf(lock(12, 'a'), names).behind).toBe(lock(7, 'b'));
    expect(mutex.holdersOf(names)).toEqual([lock(3, 'f')]);
  });

  it('takes any prefix, and the text after the last marker', () => {
    expect(mutex.positionOf(lock(5), [lock(5), 'lock-lock-0000000004']).behind).toBe('lock-lock-0000000004');
  });

  it('puts a name without the marker where all of its text puts it', () => {
    expect(mutex.positionOf(lock(5), [lock(5), '00-config']).behind).toBe('00-config');
    // As Curator, it does not see the default of kazoo, nor a read-write lock.
    expect(mutex.positionOf(lock(5), [lock(5), 'abcdef__lock__0000000001', write(1)]).behind).toBeUndefined();
  });
});

describe("The order of Curator's InterProcessReadWriteLock", () => {
  it('lets a writer wait for the node directly before it', () => {
    const names = [write(9), read(4), write(2)];
    expect(readWrite.positionOf(write(9), names).behind).toBe(read(4));
    expect(readWrite.positionOf(write(2), names).behind).toBeUndefined();
  });

  it('lets a reader wait for the last writer before it alone', () => {
    const names = [read(1), write(2), read(3), write(4), read(5), write(6)];
    expect(readWrite.positionOf(read(1), names).behind).toBeUndefined();
    expect(readWrite.positionOf(read(3), names).behind).toBe(write(2));
    expect(readWrite.positionOf(read(5), names).behind).toBe(write(4));
  });

  it('names the same first for all readers that hold together', () => {
    const names = [read(8), read(7), write(9), read(10)];
    expect(readWrite.holdersOf(names).toSorted()).toEqual([read(7), read(8)]);
    expect(readWrite.positionOf(read(8), names).first).toBe(read(7));
    expect(readWrite.holdersOf([write(3), read(4)])).toEqual([write(3)]);
    expect(readWrite.holdersOf([])).toEqual([]);
  });

  it('puts a writer before the reader of its own number (CURATOR-621)', () => {
    const names = [read(0, 'a'), write(0, 'b'), write(1)];
    expect(readWrite.positionOf(read(0, 'a'), names).behind).toBe(write(0, 'b'));
    expect(readWrite.positionOf(write(0, 'b'), names).behind).toBeUndefined();
    expect(readWrite.positionOf(write(1), names).behind).toBe(read(0, 'a'));
  });
});

describe('The order of limited nodes', () => {
  const limit = (most: number, weight: number, sequence: number, id?: string) =>
    named(`limit-${most}-${weight}-__WRIT__`, sequence, id);
  const positionOf = (own: string, ...names: string[]) => readWrite.positionOf(own, names);

  it('lets those hold that come first, while they are at most the smallest limit', () => {
    const names = [limit(5, 2, 1, 'f'), limit(4, 1, 2), limit(9, 1, 3), limit(9, 1, 4), limit(9, 1, 5)];
    expect(readWrite.holdersOf(names.toReversed())).toEqual(names.slice(0, 3));
    expect(readWrite.usageOf(names.slice(0, 3))).toEqual({ limit: 4, used: 4 });
    expect(readWrite.usageOf([write(1)])).toBeUndefined();
  });

  it('lets nobody overtake one that does not fit', () => {
    const names = [limit(3, 1, 1), limit(3, 3, 2), limit(3, 1, 3)];
    expect(readWrite.holdersOf(names)).toEqual(names.slice(0, 1));
  });

  it('lets the first waiter look at all departures, and the others at the node before them', () => {
    const names = [limit(2, 1, 1), limit(2, 1, 2), limit(2, 1, 3), limit(2, 1, 4)] as const;
    expect(positionOf(names[1], ...names)).toMatchObject({ isHeld: true, first: names[1], isAwaited: true });
    expect(positionOf(names[2], ...names)).toMatchObject({ isHeld: false });
    expect(positionOf(names[2], ...names).behind).toBeUndefined();
    expect(positionOf(names[3], ...names)).toMatchObject({ isHeld: false, behind: names[2] });
    expect(positionOf(names[1], ...names.slice(0, 2))).toMatchObject({ isHeld: true, isAwaited: false });
  });

  it('excludes readers and writers, in both directions', () => {
    expect(readWrite.holdersOf([limit(3, 1, 1), read(2), limit(3, 1, 3)])).toEqual([limit(3, 1, 1)]);
    expect(positionOf(read(2), limit(3, 1, 1), read(2)).behind).toBe(limit(3, 1, 1));
    expect(positionOf(write(3), limit(3, 1, 1), limit(3, 1, 2), write(3)).behind).toBe(limit(3, 1, 2));
    for (const other of [read(1), write(1)]) {
      expect(positionOf(limit(3, 1, 2), other, limit(3, 1, 2))).toMatchObject({ isHeld: false, behind: other });
    }
  });

  it('is seen by a mutex, with its own marker', () => {
    const name = named('limit-3-1-lock-', 4);
    expect(mutex.markerOf('limited', { limit: 3, weight: 1 })).toBe('limit-3-1-lock-');
    expect(mutex.modeOf(name)).toBe('limited');
    expect(mutex.positionOf(lock(5), [lock(5), name]).behind).toBe(name);
    expect(sequenceOf(name)).toBe(4);
    expect(mutex.modeOf(named('limit-3-1-', 4))).toBe('exclusive');
  });
});

describe('The number of a node', () => {
  it('is read from its end, also beyond the wrap', () => {
    expect(sequenceOf(lock(42))).toBe(42);
    expect(sequenceOf('_c_x-lock--2147483648')).toBe(-2_147_483_648);
  });
});
