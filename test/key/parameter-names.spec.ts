import { runInThisContext } from 'node:vm';
import { parameterNamesOf } from '../../lib/key/parameter-names.js';

const symbol = Symbol('pay');
const computed = 'computed';

/* eslint-disable @typescript-eslint/no-unused-vars */
class Parent {
  inherited() {}
}

class Service extends Parent {
  plain(order: unknown, line: unknown) {}
  none() {}
  async asynchronous(order: unknown) {}
  *generator(order: unknown): Generator<unknown> {}
  async *asyncGenerator(order: unknown): AsyncGenerator<unknown> {}
  defaults(
    order = { a: ')', b: [1, 2] },
    text = '(,',
    pattern = /[)"'`]/,
    line = ((a: number, b: number) => a + b)(1, 2),
  ) {}
  template(text = `a${`b${1}`}`, line = 1) {}
  destructured({ id }: { id: string }, [first]: string[], { x } = { x: 1 }, last: unknown) {}
  rest(order: unknown, ...lines: unknown[]) {}
  onlyRest(...lines: unknown[]) {}
  // prettier-ignore
  comments(/* a, b */ order: unknown /* c */, // d, e
    line: unknown /* = 1 */) {}
  'quoted name'(order: unknown) {}
  42(order: unknown) {}
  ['literal'](order: unknown) {}
  [computed](order: unknown) {}
  [symbol](order: unknown) {}
  get(order: unknown) {}
  async(order: unknown) {}
  static(order: unknown) {}
  function(order: unknown) {}
  größe(größe: unknown, $a: unknown, _b: unknown) {}
  private tsPrivate(order: unknown) {}
  #secret = 1;
  usesPrivate(order: unknown) {
    return this.#secret;
  }
  usesSuper(order: unknown) {
    return super.inherited();
  }
  usesMeta(order: unknown) {
    return import.meta.url;
  }
  arrow = (order: unknown, line: unknown): unknown => order;
  static plain(other: unknown) {}
}
/* eslint-enable */

type Named = Record<string | symbol, (...args: never[]) => unknown>;
const methods = Service.prototype as unknown as Named;

describe('parameterNamesOf', () => {
  it.each<[string | symbol, (string | null)[]]>([
    ['plain', ['order', 'line']],
    ['none', []],
    ['asynchronous', ['order']],
    ['generator', ['order']],
    ['asyncGenerator', ['order']],
    ['defaults', ['order', 'text', 'pattern', 'line']],
    ['template', ['text', 'line']],
    ['destructured', [null, null, null, 'last']],
    ['rest', ['order', '...lines']],
    ['onlyRest', ['...lines']],
    ['comments', ['order', 'line']],
    ['quoted name', ['order']],
    ['42', ['order']],
    ['literal', ['order']],
    ['computed', ['order']],
    [symbol, ['order']],
    ['get', ['order']],
    ['async', ['order']],
    ['function', ['order']],
    ['größe', ['größe', '$a', '_b']],
    ['tsPrivate', ['order']],
    ['usesPrivate', ['order']],
    ['usesSuper', ['order']],
    ['usesMeta', ['order']],
  ])('reads the parameter names of %p', (name, expected) => {
    const method = methods[name]!;
    expect(parameterNamesOf(method)).toEqual(expected);
    expect(parameterNamesOf(method, Service)).toEqual(expected);
    expect(parameterNamesOf(method, Service, name)).toEqual(expected);
  });

  it('reads functions that are not methods', () => {
    expect(parameterNamesOf((a: unknown, b = 1) => [a, b])).toEqual(['a', 'b']);
    expect(parameterNamesOf(async (a: unknown) => await a)).toEqual(['a']);
    expect(
      parameterNamesOf(function (a: unknown) {
        return a;
      }),
    ).toEqual(['a']);
    expect(parameterNamesOf(new Service().arrow as never, Service)).toEqual(['order', 'line']);
    expect(parameterNamesOf(Service.plain)).toEqual(['other']);
  });

  describe('with a wrapper', () => {
    const wrap = (fn: (...args: never[]) => unknown): Record<string, (...args: never[]) => unknown> => ({
      'a Proxy': new Proxy(fn, {}),
      'stacked Proxies': new Proxy(new Proxy(fn, {}), { apply: () => undefined }),
      'a bound function': fn.bind(undefined),
      'a function with ...args': function (...args: never[]) {
        return fn(...args);
      },
      'an arrow function': (...args: never[]) => fn(...args),
      'a method with ...args': {
        value(...args: never[]) {
          return fn(...args);
        },
      }.value,
      'a function with its own parameter names': function (a: never, b: never) {
        return fn(a, b);
      },
    });

    it.each(Object.entries(wrap(methods['plain']!)))('finds the method in the class: %s', (_, wrapper) => {
      expect(parameterNamesOf(wrapper, Service, 'plain')).toEqual(['order', 'line']);
    });

    it('finds the method by the name of a Proxy', () => {
      expect(parameterNamesOf(new Proxy(methods['asynchronous']!, {}), Service)).toEqual(['order']);
    });

    it.each(['quoted name', '42', 'literal', 'usesMeta', 'function', 'static'])(
      'finds the method called %s',
      (name) => {
        expect(parameterNamesOf(new Proxy(methods[name]!, {}), Service, name)).toEqual(['order']);
      },
    );

    it('does not guess', () => {
      const wrappers = wrap(methods['plain']!);
      expect(parameterNamesOf(wrappers['a Proxy']!)).toBeNull();
      expect(parameterNamesOf(wrappers['a bound function']!, Service, 'unknown')).toBeNull();
      expect(parameterNamesOf(wrappers['a Proxy']!, Service, symbol)).toBeNull();
      expect(parameterNamesOf(wrappers['a Proxy']!, Service, 'computed')).toBeNull();
      expect(parameterNamesOf(wrappers['a Proxy']!, new Proxy(Service, {}), 'plain')).toBeNull();
      expect(parameterNamesOf(wrappers['a function with ...args']!, Service, symbol)).toEqual(['...args']);
      expect(parameterNamesOf(wrappers['a function with its own parameter names']!)).toEqual(['a', 'b']);
      expect(parameterNamesOf(Math.max)).toBeNull();
      expect(parameterNamesOf(Service)).toBeNull();
    });

    it('uses the last of two methods with the same name, as the class does', () => {
      const twice = runInThisContext('(class { pay(a) {} pay(b) {} static pay(c) {} })') as new () => never;
      expect(parameterNamesOf(Math.max, twice, 'pay')).toEqual(['b']);
    });

    it('reads pre-ES2015 classes', () => {
      const OldService = runInThisContext('(function OldService() {})') as new () => never;
      const pay = runInThisContext('(function (order) { return order; })') as (...args: never[]) => unknown;
      expect(parameterNamesOf(pay, OldService, 'pay')).toEqual(['order']);
      expect(parameterNamesOf(pay.bind(undefined), OldService, 'pay')).toBeNull();
    });
  });
});
