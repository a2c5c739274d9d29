import { folderContentFor, keyIn, LockPaths, segmentOf } from '../../lib/providers/zookeeper/lock-path.js';

// Golden: processes of two versions, and services in other languages, meet on these names. They must never change.
describe('The path of a lock', () => {
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
  ])('of %j is %s', (key, segment) => {
    expect(paths.folderOf(key)).toBe(`/shop/locks/orders/${segment}`);
  });

  it.each([
    ['order:42', 'order:42'],
    ['a%2Fb', 'a/b'],
    ['%2E%2E', '..'],
    ['St%C3%BCck%20%F0%9F%98%80', 'Stück 😀'],
    ['%25sessions', '%sessions'],
    // What is stored as a hash, or was put there by somebody else, appears as it is.
    [`%sha256-${'0'.repeat(64)}`, `%sha256-${'0'.repeat(64)}`],
    ['%ZZ', '%ZZ'],
    ['a b', 'a b'],
    ['a%2fb', 'a%2fb'],
  ])('%j is that of the key %j', (segment, key) => {
    expect(paths.keyOf(segment)).toBe(key);
  });

  it.each(['x'.repeat(201), 'ü"\n'.repeat(100), 'order:\ud800'])('as a hash contains the key', (key) => {
    const content = folderContentFor(paths.folderOf(key), key);
    expect(keyIn(content!, segmentOf(key))).toBe(key);
    expect(keyIn(content!, segmentOf(`${key}x`))).toBeUndefined();
  });

  it('that shows the key does not contain it', () => {
    expect(folderContentFor('/%sha256-x/orders/order:42', 'order:42')).toBeUndefined();
  });

  it('is not that of a record', () => {
    expect(paths.jobs).toBe('/shop/locks/orders/%records/%jobs');
    expect(`${paths.failovers}/${segmentOf('%jobs')}`).not.toBe(paths.jobs);
  });

  it('is not that of a key for what the provider keeps beside the locks', () => {
    expect(paths.keyOf('%sessions')).toBeUndefined();
    expect(paths.keyOf('%records')).toBeUndefined();
  });

  it('lies in the root where there is no chroot', () => {
    expect(new LockPaths('', '..').folderOf('a')).toBe('/%2E%2E/a');
  });

  it('is what a standard library makes of the key, in Python as here', () => {
    // urllib.parse.quote("Stück/7 (ä:ö)!", safe=":")
    expect(segmentOf('Stück/7 (ä:ö)!')).toBe('St%C3%BCck%2F7%20%28%C3%A4:%C3%B6%29%21');
  });

  it('is never longer than 200 characters, nor the same for two keys', () => {
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

  it('of a key never meets the folder of the sessions', () => {
    expect(paths.sessions).toBe('/shop/locks/orders/%sessions');
    // A percent sign of a key is always followed by two digits.
    expect(segmentOf('%sessions')).not.toBe('%sessions');
  });
});
