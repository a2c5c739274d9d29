import { folderContentFor, keyIn, LockPaths, segmentOf } from '../../lib/providers/zookeeper/lock-path.js';
import { mutex, readWrite, sequenceOf } from '../../lib/providers/zookeeper/recipe.js';

// Golden: processes of two versions, and services in other languages, meet on these names. They must never change.
describe('the path of a lock', () => {
  const paths = new LockPaths('/shop/locks', 'orders');

  it.each([
    ['order:42', 'order:42'],
    ['a/b', 'a%2Fb'],
    ['.', '%2E'],
    ['..', '%2E%2E'],
    ['...', '...'],
    ['a b%', 'a%20b%25'],
    ["!'()*~-_.", '%21%27%28%29%2A~-_.'],
    ['Stück 😀', 'St%C3%BCck%20%F0%9F%98%80'],
    ['\0\n', '%00%0A'],
    ['%sessions', '%25sessions'],
    ['\ud800', '%sha256-205022e3428b7c8276cf247b36e4e512db5651e5cb3472c253d9ee893a8ac750'],
    ['x'.repeat(201), '%sha256-c3c5341496a657eba2957cea7a62e38afff86438d5b31fb1f78505331c081cfd'],
  ])('for %j is %s', (key, segment) => {
    expect(paths.folderOf(key)).toBe(`/shop/locks/orders/${segment}`);
  });

  it.each([
    ['order:42', 'order:42'],
    ['a%2Fb', 'a/b'],
    ['%2E%2E', '..'],
    ['St%C3%BCck%20%F0%9F%98%80', 'Stück 😀'],
    ['%25sessions', '%sessions'],
    // A hash, or a folder that another client created, is returned unchanged.
    [`%sha256-${'0'.repeat(64)}`, `%sha256-${'0'.repeat(64)}`],
    ['%ZZ', '%ZZ'],
    ['a b', 'a b'],
    ['a%2fb', 'a%2fb'],
  ])('%j maps back to the key %j', (segment, key) => {
    expect(paths.keyOf(segment)).toBe(key);
  });

  it.each(['x'.repeat(201), 'ü"\n'.repeat(100), 'order:\ud800'])(
    'stores the key in its folder if the path contains only its hash',
    (key) => {
      const content = folderContentFor(paths.folderOf(key), key);
      expect(keyIn(content!, segmentOf(key))).toBe(key);
      expect(keyIn(content!, segmentOf(`${key}x`))).toBeUndefined();
    },
  );

  it('does not store a key that the path contains', () => {
    expect(folderContentFor('/%sha256-x/orders/order:42', 'order:42')).toBeUndefined();
  });

  it('is never the path of a record', () => {
    expect(paths.jobs).toBe('/shop/locks/orders/%records/%jobs');
    expect(`${paths.failovers}/${segmentOf('%jobs')}`).not.toBe(paths.jobs);
  });

  it("of the provider's own folders maps back to no key", () => {
    expect(paths.keyOf('%sessions')).toBeUndefined();
    expect(paths.keyOf('%records')).toBeUndefined();
  });

  it('is in the root if there is no chroot', () => {
    expect(new LockPaths('', '..').folderOf('a')).toBe('/%2E%2E/a');
  });

  it('matches a standard URL encoder, in Python as here', () => {
    // urllib.parse.quote("Stück/7 (ä:ö)!", safe=":")
    expect(segmentOf('Stück/7 (ä:ö)!')).toBe('St%C3%BCck%2F7%20%28%C3%A4:%C3%B6%29%21');
  });

  it('has at most 200 characters, and differs for every two keys', () => {
    const keys = [
      'ü'.repeat(33),
      'ü'.repeat(34),
      'x'.repeat(200),
      'x'.repeat(201),
      `${'x'.repeat(200)}y`,
      '\ud800',
      '\ud801',
      '�',
    ];
    const segments = keys.map(segmentOf);
    expect(new Set(segments).size).toBe(keys.length);
    expect(Math.max(...segments.map(({ length }) => length))).toBe(200);
  });

  it('never collides with the sessions folder', () => {
    expect(paths.sessions).toBe('/shop/locks/orders/%sessions');
    // A percent sign in a key's path is always followed by two digits.
    expect(segmentOf('%sessions')).not.toBe('%sessions');
  });
});

const named = (marker: string, sequence: number, id = 'a') =>
  `_c_${id.repeat(8)}-1111-1111-1111-111111111111-${marker}${String(sequence).padStart(10, '0')}`;
const lock = (sequence: number, id?: string) => named('lock-', sequence, id);
const read = (sequence: number, id?: string) => named('__READ__', sequence, id);
const write = (sequence: number, id?: string) => named('__WRIT__', sequence, id);

describe("the order of Curator's InterProcessMutex", () => {
  it('follows the sequence numbers, whatever the ids are', () => {
    const names = [lock(12, 'a'), lock(3, 'f'), lock(7, 'b')];
    expect(mutex.positionOf(lock(3, 'f'), names).behind).toBeUndefined();
    expect(mutex.positionOf(lock(7, 'b'), names).behind).toBe(lock(3, 'f'));
    expect(mutex.positionOf(lock(12, 'a'), names).behind).toBe(lock(7, 'b'));
    expect(mutex.holdersOf(names)).toEqual([lock(3, 'f')]);
  });

  it('accepts any prefix, and uses the text after the last marker', () => {
    expect(mutex.positionOf(lock(5), [lock(5), 'lock-lock-0000000004']).behind).toBe('lock-lock-0000000004');
  });

  it('sorts a name without the marker by all of its text', () => {
    expect(mutex.positionOf(lock(5), [lock(5), '00-config']).behind).toBe('00-config');
    // Like Curator, it does not see kazoo's default lock or a read-write lock.
    expect(mutex.positionOf(lock(5), [lock(5), 'abcdef__lock__0000000001', write(1)]).behind).toBeUndefined();
  });
});

describe("the order of Curator's InterProcessReadWriteLock", () => {
  it('makes a writer wait for the node directly before it', () => {
    const names = [write(9), read(4), write(2)];
    expect(readWrite.positionOf(write(9), names).behind).toBe(read(4));
    expect(readWrite.positionOf(write(2), names).behind).toBeUndefined();
  });

  it('makes a reader wait only for the last writer before it', () => {
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

  it('puts a writer before the reader with the same number (CURATOR-621)', () => {
    const names = [read(0, 'a'), write(0, 'b'), write(1)];
    expect(readWrite.positionOf(read(0, 'a'), names).behind).toBe(write(0, 'b'));
    expect(readWrite.positionOf(write(0, 'b'), names).behind).toBeUndefined();
    expect(readWrite.positionOf(write(1), names).behind).toBe(read(0, 'a'));
  });
});

describe('the order of limited nodes', () => {
  const limit = (most: number, weight: number, sequence: number, id?: string) =>
    named(`limit-${most}-${weight}-__WRIT__`, sequence, id);
  const positionOf = (own: string, ...names: string[]) => readWrite.positionOf(own, names);

  it('grants the first nodes, up to the smallest limit', () => {
    const names = [limit(5, 2, 1, 'f'), limit(4, 1, 2), limit(9, 1, 3), limit(9, 1, 4), limit(9, 1, 5)];
    expect(readWrite.holdersOf(names.toReversed())).toEqual(names.slice(0, 3));
    expect(readWrite.usageOf(names.slice(0, 3))).toEqual({ limit: 4, used: 4 });
    expect(readWrite.usageOf([write(1)])).toBeUndefined();
  });

  it('lets no node overtake one that does not fit', () => {
    const names = [limit(3, 1, 1), limit(3, 3, 2), limit(3, 1, 3)];
    expect(readWrite.holdersOf(names)).toEqual(names.slice(0, 1));
  });

  it('makes the first waiter watch all departures, and the others the node before them', () => {
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

  it('is visible to a mutex, with its own marker', () => {
    const name = named('limit-3-1-lock-', 4);
    expect(mutex.markerOf('limited', { limit: 3, weight: 1 })).toBe('limit-3-1-lock-');
    expect(mutex.modeOf(name)).toBe('limited');
    expect(mutex.positionOf(lock(5), [lock(5), name]).behind).toBe(name);
    expect(sequenceOf(name)).toBe(4);
    expect(mutex.modeOf(named('limit-3-1-', 4))).toBe('exclusive');
  });
});

describe('the sequence number of a node', () => {
  it('is read from the end of its name, even after it wraps around', () => {
    expect(sequenceOf(lock(42))).toBe(42);
    expect(sequenceOf('_c_x-lock--2147483648')).toBe(-2_147_483_648);
  });
});
