import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { encodeKeyValue, separatesValues } from '../../lib/key/key-value.js';
import { LockKeyError } from '../../lib/api/errors.js';
import { readItems, readProperty } from '../../lib/key/property.js';

const encode = (value: unknown): string => encodeKeyValue(value, () => 'The value');

describe('encodeKeyValue', () => {
  it.each<[unknown, string]>([
    ['42', '42'],
    ['Az_9.-', 'Az_9.-'],
    [42, '42'],
    [-7, '-7'],
    [0, '0'],
    [-0, '0'],
    [1.5, '1.5'],
    [1e21, '1e+21'],
    [2 ** 53, '9007199254740992'],
    [12345678901234567890n, '12345678901234567890'],
    [-1n, '-1'],
    [true, 'true'],
    [false, 'false'],
    [new Date(0), '1970-01-01T00%3A00%3A00.000Z'],
    ['a:b', 'a%3Ab'],
    ['a/b', 'a%2Fb'],
    ['{tag}', '{tag}'],
    ['100%', '100%25'],
    ['%3A', '%253A'],
    ['a b', 'a b'],
    ['\r\n\0\x7f\x85', '%0D%0A%00%7F%C2%85'],
    ['a#b', 'a#b'],
    ['#{id}', '%23{id}'],
    ['no#', 'no%23'],
    ['urn:isbn:1', 'urn%3Aisbn%3A1'],
    ['https://x.org/?a=1&b', 'https%3A%2F%2Fx.org%2F?a=1&b'],
    ['2001:db8::1', '2001%3Adb8%3A%3A1'],
    ['f47ac10b-58cc-4372-a567-0e02b2c3d479', 'f47ac10b-58cc-4372-a567-0e02b2c3d479'],
    ['ann@x.org', 'ann@x.org'],
    ['é', 'é'],
    ['e\u0301', 'e\u0301'],
    ['😀', '😀'],
    ['\u202eabc', '\u202eabc'],
    ["!~*'()", "!~*'()"],
  ])('encodes %j as %s', (value, expected) => {
    expect(encode(value)).toBe(expected);
  });

  it.each<[unknown, string]>([
    [undefined, 'The value is undefined'],
    [null, 'The value is null'],
    ['', 'The value is an empty string'],
    [Number.NaN, 'The value is NaN'],
    [Number.POSITIVE_INFINITY, 'The value is Infinity'],
    [new Date(Number.NaN), 'The value is an invalid Date'],
    [{}, 'The value is an object'],
    [{ toString: () => '42' }, 'The value is an object'],
    [new String('42'), 'The value is an object'],
    [['42'], 'The value is an object'],
    [Symbol('42'), 'The value is a symbol'],
    [() => '42', 'The value is a function'],
    ['\ud800', 'The value is not well-formed Unicode'],
    ['a\udc00b', 'The value is not well-formed Unicode'],
    ['x'.repeat(4_097), 'The value is too long'],
    ['ä'.repeat(1_000_000), 'The value is too long'],
    [10n ** 5_000n, 'The value is too long'],
  ])('rejects %p', (value, message) => {
    expect(() => encode(value)).toThrow(LockKeyError);
    expect(() => encode(value)).toThrow(message);
  });

  it('treats a proxied Date as an object', () => {
    expect(() => encode(new Proxy(new Date(), {}))).toThrow('The value is an object');
  });

  it('never includes the value in the error', () => {
    expect(() => encode('secret\ud800')).toThrow(/^(?!.*secret)/);
  });

  it('recognizes a Date from another realm', () => {
    expect(encode(runInNewContext('new Date(0)'))).toBe('1970-01-01T00%3A00%3A00.000Z');
  });

  it('calls no method overridden by a Date', () => {
    const date = Object.assign(new Date(0), { toISOString: () => 'forged', getTime: () => 1 });
    expect(encode(date)).toBe('1970-01-01T00%3A00%3A00.000Z');
  });

  it('maps different texts to different key parts without separators', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1 }), (text) => {
        expect(decodeURIComponent(encode(text))).toBe(text);
        expect(separatesValues(encode(text))).toBe(false);
        expect(encode(text)).not.toMatch(/[\p{Cc}:/]|#\{/u);
      }),
    );
  });

  it('returns a text or throws a LockKeyError for any value', () => {
    fc.assert(
      fc.property(
        fc.anything({ withBigInt: true, withDate: true, withNullPrototype: true, withSparseArray: true }),
        (value) => {
          try {
            expect(encode(value)).not.toBe('');
          } catch (error) {
            expect(error).toBeInstanceOf(LockKeyError);
          }
        },
      ),
    );
  });
});

describe('separatesValues', () => {
  it.each([':', '/', 'a:b', ' : '])('accepts %j', (literal) => {
    expect(separatesValues(literal)).toBe(true);
  });

  it.each(['', '-', '_', '.', 'abc', '12', '%', '%3A', "!~*'()", ' ', '|', '@', '#', '{}', 'é', '\0'])(
    'rejects %j',
    (literal) => {
      expect(separatesValues(literal)).toBe(false);
    },
  );
});

class Base {
  inherited = 'own';
  get computed(): string {
    return 'getter';
  }
  set writable(_: string) {}
  method(): string {
    return 'method';
  }
  get overridden(): string {
    return 'base';
  }
}

class Derived extends Base {}
Object.defineProperty(Derived.prototype, 'overridden', { value: () => 'method' });

describe('readProperty', () => {
  it.each<[string, unknown, string | number, unknown]>([
    ['an own property', { id: 1 }, 'id', 1],
    ['an own property of an object without a prototype', Object.assign(Object.create(null), { id: 1 }), 'id', 1],
    ['an own getter', Object.defineProperty({}, 'id', { get: () => 1 }), 'id', 1],
    ['a non-enumerable own property', Object.defineProperty({}, 'id', { value: 1 }), 'id', 1],
    ['an index', ['a', 'b'], 1, 'b'],
    ['an index as a name', ['a', 'b'], '1', 'b'],
    ['the length of an array', ['a', 'b'], 'length', 2],
    ['the length of a string', 'abc', 'length', 3],
    ['a character of a string', 'abc', 1, 'b'],
    ['a class getter', new Base(), 'computed', 'getter'],
    ['a base class getter', new Derived(), 'computed', 'getter'],
    ['a platform getter', new URL('http://x.org/'), 'hostname', 'x.org'],
    ['a getter that uses `this`', new Map([[1, 1]]), 'size', 1],
  ])('reads %s', (_, holder, name, expected) => {
    expect(readProperty(holder, name)).toBe(expected);
  });

  it.each<[string, unknown, string | number]>([
    ['a property of undefined', undefined, 'id'],
    ['a property of null', null, 'id'],
    ['a property of a number', 42, 'toFixed'],
    ['a property of a symbol', Symbol('x'), 'description'],
    ['a property of a function', Object.assign(() => 1, { id: 1 }), 'id'],
    ['a property of a class', Base, 'name'],
    ['a method', new Base(), 'method'],
    ['a setter', new Base(), 'writable'],
    ['a getter hidden by a method with the same name', new Derived(), 'overridden'],
    ['an array method', [], 'map'],
    ['a string method', 'abc', 'trim'],
    ['an inherited constant', Object.create({ id: 1 }), 'id'],
    ['a method of Object.prototype', {}, 'toString'],
    ['the reference to Object.prototype', {}, '__proto__'],
    ["the reference to another realm's Object.prototype", runInNewContext('({})'), '__proto__'],
    ['the constructor', new Base(), 'constructor'],
  ])('does not read %s', (_, holder, name) => {
    expect(readProperty(holder, name)).toBeUndefined();
  });

  it('does not read a polluted Object.prototype', () => {
    Object.defineProperty(Object.prototype, 'polluted', { configurable: true, get: () => 'yes' });
    try {
      expect(({} as Record<string, unknown>)['polluted']).toBe('yes');
      expect(readProperty({}, 'polluted')).toBeUndefined();
      expect(readProperty(new Base(), 'polluted')).toBeUndefined();
      expect(readProperty([], 'polluted')).toBeUndefined();
    } finally {
      Reflect.deleteProperty(Object.prototype, 'polluted');
    }
  });

  it('stops on an endless prototype chain', () => {
    const endless: object = new Proxy({}, { getPrototypeOf: () => endless });
    expect(readProperty(endless, 'id')).toBeUndefined();
  });
});

describe('readItems', () => {
  it('reads the first items of an array', () => {
    expect(readItems(['a', 'b', 'c'], 2)).toEqual(['a', 'b']);
    expect(readItems([], 2)).toEqual([]);
  });

  it('reads holes as undefined, even if Array.prototype is polluted', () => {
    expect(readItems(Array(1), 2)).toEqual([undefined]);
  });

  it.each([[undefined], [null], ['abc'], [{ length: 1, 0: 'a' }], [new Set([1])], [42]])(
    'treats %p as not a list',
    (value) => {
      expect(readItems(value, 2)).toBeUndefined();
    },
  );

  it('calls no iterator and no method of the list', () => {
    class Forged extends Array<string> {
      override [Symbol.iterator](): never {
        throw new Error('iterated');
      }
      override map(): never {
        throw new Error('mapped');
      }
    }
    expect(readItems(Forged.of('a', 'b'), 5)).toEqual(['a', 'b']);
  });
});
