import fc from 'fast-check';
import { lockKey } from '../../lib/key/key-tag.js';
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
      expect(write).toThrow('Value 2 of the lock key "order:${…}/${…}-${…}" needs a separator');
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
