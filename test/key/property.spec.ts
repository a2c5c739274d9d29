import { runInNewContext } from 'node:vm';
import { readItems, readProperty } from '../../lib/key/property.js';

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
    ['an own property without a prototype', Object.assign(Object.create(null), { id: 1 }), 'id', 1],
    ['an own getter', Object.defineProperty({}, 'id', { get: () => 1 }), 'id', 1],
    ['a hidden own property', Object.defineProperty({}, 'id', { value: 1 }), 'id', 1],
    ['an index', ['a', 'b'], 1, 'b'],
    ['an index as a name', ['a', 'b'], '1', 'b'],
    ['the length of an array', ['a', 'b'], 'length', 2],
    ['the length of a string', 'abc', 'length', 3],
    ['a character of a string', 'abc', 1, 'b'],
    ['a getter of a class', new Base(), 'computed', 'getter'],
    ['a getter of a base class', new Derived(), 'computed', 'getter'],
    ['a getter of the platform', new URL('http://x.org/'), 'hostname', 'x.org'],
    ['a getter with this', new Map([[1, 1]]), 'size', 1],
  ])('reads %s', (_, holder, name, expected) => {
    expect(readProperty(holder, name)).toBe(expected);
  });

  it.each<[string, unknown, string | number]>([
    ['nothing of undefined', undefined, 'id'],
    ['nothing of null', null, 'id'],
    ['nothing of a number', 42, 'toFixed'],
    ['nothing of a symbol', Symbol('x'), 'description'],
    ['nothing of a function', Object.assign(() => 1, { id: 1 }), 'id'],
    ['nothing of a class', Base, 'name'],
    ['no method', new Base(), 'method'],
    ['no setter', new Base(), 'writable'],
    ['no getter behind a method of the same name', new Derived(), 'overridden'],
    ['no method of an array', [], 'map'],
    ['no method of a string', 'abc', 'trim'],
    ['no inherited constant', Object.create({ id: 1 }), 'id'],
    ['no method of Object.prototype', {}, 'toString'],
    ['not the way to Object.prototype', {}, '__proto__'],
    ['not the way to it in another realm', runInNewContext('({})'), '__proto__'],
    ['not the class', new Base(), 'constructor'],
  ])('reads %s', (_, holder, name) => {
    expect(readProperty(holder, name)).toBeUndefined();
  });

  it('reads nothing of a polluted Object.prototype', () => {
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

  it('ends where a chain of prototypes has no end', () => {
    const endless: object = new Proxy({}, { getPrototypeOf: () => endless });
    expect(readProperty(endless, 'id')).toBeUndefined();
  });
});

describe('readItems', () => {
  it('reads the first items of an array', () => {
    expect(readItems(['a', 'b', 'c'], 2)).toEqual(['a', 'b']);
    expect(readItems([], 2)).toEqual([]);
  });

  it('finds holes to be undefined, whatever Array.prototype says', () => {
    expect(readItems(Array(1), 2)).toEqual([undefined]);
  });

  it.each([[undefined], [null], ['abc'], [{ length: 1, 0: 'a' }], [new Set([1])], [42]])(
    'takes %p for no list',
    (value) => {
      expect(readItems(value, 2)).toBeUndefined();
    },
  );

  it('runs no iterator and no method of the list', () => {
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
