import fc from 'fast-check';
import { type LockKey, normalizeKeys } from '../../lib/key/lock-key.js';
import { LockKeyError } from '../../lib/api/errors.js';

describe('normalizeKeys', () => {
  it('takes one key as it is', () => {
    expect(normalizeKeys('order:42')).toEqual(['order:42']);
  });

  it('sorts by UTF-16 code units and takes each key once', () => {
    expect(normalizeKeys(['b', 'a', 'B', 'b', '\ufffd', '😀', 'é', '10', '9'])).toEqual([
      '10',
      '9',
      'B',
      'a',
      'b',
      'é',
      '😀',
      '\ufffd',
    ]);
  });

  it('leaves the list of the caller alone', () => {
    const keys = Object.freeze(['b', 'a']);
    expect(normalizeKeys(keys)).toEqual(['a', 'b']);
    expect(keys).toEqual(['b', 'a']);
  });

  it('takes 100 keys of 4,096 bytes', () => {
    const keys = Array.from({ length: 100 }, (_, index) => `${'x'.repeat(4_093)}${index + 100}`);
    expect(normalizeKeys(keys)).toHaveLength(100);
    expect(normalizeKeys('ä'.repeat(2_048))).toHaveLength(1);
    expect(normalizeKeys('a\0b')).toEqual(['a\0b']);
  });

  it.each<[string, unknown, string]>([
    ['an empty key', '', 'must not be empty'],
    ['an empty key in a list', ['a', ''], 'must not be empty'],
    ['no keys', [], 'empty list'],
    ['too many keys', Array.from({ length: 101 }, String), 'at most 100'],
    ['a number', 42, 'got number'],
    ['undefined', undefined, 'got undefined'],
    ['null', null, 'a string or a list of strings'],
    ['a number in a list', ['a', 42], 'got number'],
    ['a hole in a list', Array(2), 'got undefined'],
    ['a key of 4,097 bytes', 'x'.repeat(4_097), 'longer than 4096 bytes'],
    ['a key of 4,098 bytes in UTF-8', 'ä'.repeat(2_049), 'longer than 4096 bytes'],
    ['half of a surrogate pair', 'a\ud800', 'not well-formed'],
    ['half of a surrogate pair in a list', ['a', '\udc00b'], 'not well-formed'],
  ])('refuses %s', (_, key, message) => {
    expect(() => normalizeKeys(key as LockKey)).toThrow(LockKeyError);
    expect(() => normalizeKeys(key as LockKey)).toThrow(message);
  });

  it('shows only the beginning of a key of megabytes, on one line', () => {
    const key = `start\r\n${'x'.repeat(2_000_000)}`;
    let message = '';
    try {
      normalizeKeys(key);
    } catch (error) {
      ({ message } = error as Error);
    }
    expect(message).toContain('start\\r\\n');
    expect(message).not.toMatch(/[\r\n]/);
    expect(message.length).toBeLessThan(250);
  });

  it('gives a sorted list of what was asked for, or a LockKeyError', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary', minLength: 1 }), { minLength: 1, maxLength: 100 }), (keys) => {
        const normal = normalizeKeys(keys);
        expect(new Set(normal)).toEqual(new Set(keys));
        expect(normal.every((key, index) => index === 0 || normal[index - 1]! < key)).toBe(true);
      }),
    );
    fc.assert(
      fc.property(fc.anything(), (key) => {
        try {
          expect(normalizeKeys(key as LockKey).length).toBeGreaterThan(0);
        } catch (error) {
          expect(error).toBeInstanceOf(LockKeyError);
        }
      }),
    );
  });
});

it('refuses a template, which only decorators understand', () => {
  expect(() => normalizeKeys('order:#{order.id}')).toThrow('in code, write lockKey`order:${order.id}`');
  expect(normalizeKeys('order:#1')).toEqual(['order:#1']);
});
