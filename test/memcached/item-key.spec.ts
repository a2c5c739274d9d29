import { secondsFor } from '../../lib/providers/memcached/expiry.js';
import { itemKeyOf } from '../../lib/providers/memcached/item-key.js';
import { LockConfigError } from '../../lib/api/errors.js';
import { readOptions } from '../../lib/providers/memcached/memcached-options.js';

// Golden: processes of two versions must find each other's locks.
describe('the name of an item never changes', () => {
  it.each([
    ['order:42', 'shop:order:42'],
    ['a%20b/c', 'shop:a%20b/c'],
    ['', 'shop:#47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU'],
    ['#', 'shop:#ne-ZbLHqh-WWtsrczKODmjUumdnOB-Y1zbI584yilPg'],
    ['a b', 'shop:#h4fMnf0CFrqHZE2QKepVI-VfEDmrXap6hhhmU2qKI_s'],
    ['é', 'shop:#Y-PIB_k_ZpomJfN-5nNybDbvPpm2t9sCyRC-JQh-D5w'],
    ['x'.repeat(161), 'shop:#vY7tPUf5EFgj-ulcsBtLLKT9beiZfUfHcHIOYao3b6s'],
  ])('%j', (key, name) => {
    expect(itemKeyOf('shop', key)).toBe(name);
  });

  it('and fits into 250 bytes without blanks and control characters, whatever the key', () => {
    for (const key of ['\0', '\r\nflush_all\r\n', ' ', '\ud800', '😀'.repeat(500), 'x'.repeat(160)]) {
      expect(itemKeyOf('n'.repeat(64), key)).toMatch(/^[!-~]{1,250}$/);
    }
  });
});

describe('the seconds of an item', () => {
  it('are two more than the time that is trusted', () => {
    expect([1, 1_000, 1_001, 30_000].map(secondsFor)).toEqual([3, 3, 4, 32]);
  });

  it('are refused where memcached would take them for a point in time', () => {
    const thirtyDays = 30 * 24 * 60 * 60 * 1_000;
    expect(secondsFor(thirtyDays - 2_000)).toBe(2_592_000);
    expect(() => secondsFor(thirtyDays)).toThrow(LockConfigError);
  });
});

describe('the server option', () => {
  it.each([
    ['cache', 'cache', 11211],
    ['10.0.0.1:11212', '10.0.0.1', 11212],
    ['[::1]:1', '::1', 1],
  ])('%s', (server, host, port) => {
    expect(readOptions({ server })).toMatchObject({ host, port, commandTimeout: 2_000 });
  });

  it.each([
    undefined as never,
    null as never,
    ['cache'] as never,
    '',
    'a b',
    'cache:0',
    'cache:99999',
    'memcached://cache',
    '::1',
    'a:1,b:1',
  ])('refuses "%s"', (server) => {
    expect(() => readOptions({ server })).toThrow(LockConfigError);
    expect(() => readOptions({ server })).toThrow('"server"');
  });
});
