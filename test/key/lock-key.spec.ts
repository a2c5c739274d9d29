import fc from 'fast-check';
import { LockKeyError } from '../../lib/api/errors.js';
import { lockKey } from '../../lib/key/key-tag.js';
import { KeyTemplate } from '../../lib/key/key-template.js';
import { type LockKey, normalizeKeys } from '../../lib/key/lock-key.js';
import { missingValueIn } from '../../lib/key/missing-value.js';

describe('normalizeKeys', () => {
  it('wraps a single key', () => {
    expect(normalizeKeys('order:42')).toEqual(['order:42']);
  });

  it('sorts by UTF-16 code units and removes duplicates', () => {
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

  it("does not modify the caller's list", () => {
    const keys = Object.freeze(['b', 'a']);
    expect(normalizeKeys(keys)).toEqual(['a', 'b']);
    expect(keys).toEqual(['b', 'a']);
  });

  it('accepts 100 keys of 4,096 bytes', () => {
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
    ['a lone surrogate', 'a\ud800', 'not well-formed'],
    ['a lone surrogate in a list', ['a', '\udc00b'], 'not well-formed'],
  ])('rejects %s', (_, key, message) => {
    expect(() => normalizeKeys(key as LockKey)).toThrow(LockKeyError);
    expect(() => normalizeKeys(key as LockKey)).toThrow(message);
  });

  it('shows only the start of a very long key, on one line', () => {
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

  it('returns a sorted list of the given keys, or throws a LockKeyError', () => {
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

it('normalizeKeys() rejects a template, which only decorators evaluate', () => {
  expect(() => normalizeKeys('order:#{order.id}')).toThrow('in code, write lockKey`order:${order.id}`');
  expect(normalizeKeys('order:#1')).toEqual(['order:#1']);
});

describe('lockKey', () => {
  it('encodes the values of a key', () => {
    expect(lockKey`order:${42}:${'a:b'}`).toBe('order:42:a%3Ab');
    expect(lockKey`${'id'}`).toBe('id');
    expect(lockKey`nightly`).toBe('nightly');
    expect(lockKey`${1n}/${true}/${new Date(0)}.lock`).toBe('1/true/1970-01-01T00%3A00%3A00.000Z.lock');
  });

  it('rejects a value that cannot be part of a key, and names it', () => {
    const id = undefined as unknown as string;
    const write = (): string => lockKey`order:${42}:${id}`;
    expect(write).toThrow(LockKeyError);
    expect(write).toThrow('Value 2 of the lock key "order:${…}:${…}" is undefined');
  });

  it('rejects adjacent values without a separator every time', () => {
    const write = (): string => lockKey`order:${'x'}/${1}-${23}`;
    for (let time = 0; time < 2; time++) {
      expect(write).toThrow(LockKeyError);
      expect(write).toThrow('Value 2 of the lock key');
    }
    expect(() => lockKey`${1}${23}`).toThrow(LockKeyError);
  });

  it('rejects an empty key', () => {
    expect(() => lockKey``).toThrow(LockKeyError);
  });

  it('never creates the same key from different values', () => {
    const value = fc.string({ unit: fc.constantFrom('1', '-', ':', '%', '3', 'A', '.'), minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(value, value, value, value, (a, b, c, d) => {
        const same = a === c && b === d;
        expect(lockKey`-${a}-:${b}.` === lockKey`-${c}-:${d}.`).toBe(same);
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('a key written in three ways', () => {
  const site = { method: 'Users.run', className: 'Users', methodName: 'run', parameters: ['value'] };
  const inTemplate = (value: unknown) =>
    KeyTemplate.parse('user:#{value}:x', site).evaluate({ self: undefined, args: [value] });

  it.each(['ann@x.org', 'f47ac10b-58cc-4372-a567-0e02b2c3d479', 'é', 'a b', '😀', 42, -7, true, 10n])(
    'is the same in a template, with lockKey, and as plain text: %p',
    (value) => {
      expect(inTemplate(value)).toBe(`user:${value}:x`);
      expect(lockKey`user:${value}:x`).toBe(`user:${value}:x`);
    },
  );

  it.each(['https://x.org/a', 'urn:isbn:1', '2001:db8::1', '100%', 'a\nb', new Date(0), '#{id}'])(
    'is the same in a template and with lockKey, and cannot be forged by plain text: %p',
    (value) => {
      expect(inTemplate(value)).toBe(lockKey`user:${value}:x`);
      expect(inTemplate(value)).not.toBe(`user:${String(value)}:x`);
    },
  );

  it('is rejected if a value is undefined, unlike plain text', () => {
    const missing = undefined as unknown as string;
    expect(() => inTemplate(missing)).toThrow(LockKeyError);
    expect(() => lockKey`user:${missing}:x`).toThrow(LockKeyError);
  });
});

const text = (value: unknown) => String(value);

it.each([
  [`order:${text(undefined)}`, 'undefined'],
  [`${text(null)}:line:1`, 'null'],
  [`tenant:a/order/${text(NaN)}/lines`, 'NaN'],
  [`order:${text({ id: 1 })}`, '[object Object]'],
  [`order:${text([{ id: 1 }, { id: 2 }])}:pay`, '[object Object],[object Object]'],
  [`order:${text(Promise.resolve(1))}`, '[object Promise]'],
  [`report:${text(new Date(NaN))}`, 'Invalid Date'],
  ['undefined', 'undefined'],
  [`a:${text(undefined)}:${text(null)}`, 'undefined'],
])('missingValueIn() finds the missing value in %s', (key, segment) => {
  expect(missingValueIn(key)).toEqual({ key, segment });
  expect(missingValueIn(['order:1', key])).toEqual({ key, segment });
});

it.each(['order:42', 'undefined-behavior', 'slug:null-object', 'user:Null', 'user:nan', 'a:nullable', 'x[object]', ''])(
  'missingValueIn() finds nothing in "%s"',
  (key) => {
    expect(missingValueIn(key)).toBeUndefined();
    expect(missingValueIn([key])).toBeUndefined();
  },
);

it('missingValueIn() finds nothing in a value that is not a key', () => {
  for (const key of [undefined, null, 7, {}, [undefined, 7]]) expect(missingValueIn(key as never)).toBeUndefined();
});
