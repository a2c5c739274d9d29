import fc from 'fast-check';
import { lockKey } from '../../lib/key/key-tag.js';
import { KeyTemplate } from '../../lib/key/key-template.js';
import { LockKeyError } from '../../lib/api/errors.js';

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
