import fc from 'fast-check';
import { LockKeyError } from '../../lib/api/errors.js';
import { lockKey } from '../../lib/key/key-tag.js';
import { KeyTemplate } from '../../lib/key/key-template.js';
import { type LockKey, normalizeKeys } from '../../lib/key/lock-key.js';
import { missingValueIn } from '../../lib/key/missing-value.js';

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

describe('lockKey', () => {
  it('writes a key with its values encoded', () => {
    expect(lockKey`order:${42}:${'a:b'}`).toBe('order:42:a%3Ab');
    expect(lockKey`${'id'}`).toBe('id');
    expect(lockKey`nightly`).toBe('nightly');
    expect(lockKey`${1n}/${true}/${new Date(0)}.lock`).toBe('1/true/1970-01-01T00%3A00%3A00.000Z.lock');
  });

  it('refuses what cannot stand in a key, naming the value', () => {
    const id = undefined as unknown as string;
    const write = (): string => lockKey`order:${42}:${id}`;
    expect(write).toThrow(LockKeyError);
    expect(write).toThrow('Value 2 of the lock key "order:${…}:${…}" is undefined');
  });

  it('refuses two values without a separator, every time', () => {
    const write = (): string => lockKey`order:${'x'}/${1}-${23}`;
    for (let time = 0; time < 2; time++) {
      expect(write).toThrow(LockKeyError);
      expect(write).toThrow('Value 2 of the lock key');
    }
    expect(() => lockKey`${1}${23}`).toThrow(LockKeyError);
  });

  it('refuses an empty key', () => {
    expect(() => lockKey``).toThrow(LockKeyError);
  });

  it('never writes the same key for different values', () => {
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

describe('one key, written in three ways', () => {
  const site = { method: 'Users.run', className: 'Users', methodName: 'run', parameters: ['value'] };
  const inTemplate = (value: unknown) =>
    KeyTemplate.parse('user:#{value}:x', site).evaluate({ self: undefined, args: [value] });

  it.each(['ann@x.org', 'f47ac10b-58cc-4372-a567-0e02b2c3d479', 'é', 'a b', '😀', 42, -7, true, 10n])(
    'is the same in a template, with lockKey and as plain text: %p',
    (value) => {
      expect(inTemplate(value)).toBe(`user:${value}:x`);
      expect(lockKey`user:${value}:x`).toBe(`user:${value}:x`);
    },
  );

  it.each(['https://x.org/a', 'urn:isbn:1', '2001:db8::1', '100%', 'a\nb', new Date(0), '#{id}'])(
    'is the same in a template and with lockKey, and no plain text can pretend to be it: %p',
    (value) => {
      expect(inTemplate(value)).toBe(lockKey`user:${value}:x`);
      expect(inTemplate(value)).not.toBe(`user:${String(value)}:x`);
    },
  );

  it('is refused where a value is undefined, which plain text does not notice', () => {
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
])('%s has the text of a missing value', (key, segment) => {
  expect(missingValueIn(key)).toEqual({ key, segment });
  expect(missingValueIn(['order:1', key])).toEqual({ key, segment });
});

it.each(['order:42', 'undefined-behavior', 'slug:null-object', 'user:Null', 'user:nan', 'a:nullable', 'x[object]', ''])(
  '"%s" has none',
  (key) => {
    expect(missingValueIn(key)).toBeUndefined();
    expect(missingValueIn([key])).toBeUndefined();
  },
);

it('what is no key has none', () => {
  for (const key of [undefined, null, 7, {}, [undefined, 7]]) expect(missingValueIn(key as never)).toBeUndefined();
});
