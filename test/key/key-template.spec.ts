import { KeyTemplate } from '../../lib/key/key-template.js';
import type { KeyScope, KeySite } from '../../lib/key/scope.js';
import { LockKeyError } from '../../lib/api/errors.js';

const site: KeySite = {
  method: 'OrderService.pay',
  className: 'OrderService',
  methodName: 'pay',
  parameters: ['order', 'line', null, 'größe'],
};

class Customer {
  tags = ['vip', 'eu'];
  constructor(private readonly first: string) {}
  get name(): string {
    return this.first.toUpperCase();
  }
  get broken(): string {
    throw new TypeError('no name');
  }
  greet(): string {
    return 'hello';
  }
}

const order = {
  id: 42,
  note: '',
  nothing: null,
  'odd name': 'odd',
  customer: new Customer('ann'),
  lines: [{ id: 1, product: { sku: 'a/b' } }, { id: 2 }],
  many: Array.from({ length: 101 }, (_, index) => index),
  empty: [],
  at: new Date(0),
};

const scope: KeyScope = {
  self: { tenant: 'acme', [0]: 'zero' },
  args: [order, 7, { deep: { x: 'x' } }, 'groß', ['p4']],
  request: { params: { id: 'r1' }, user: undefined },
  context: (name) => ({ region: 'eu:1' })[name],
};

function parse(source: string, parameters: KeySite['parameters'] = site.parameters): KeyTemplate {
  return KeyTemplate.parse(source, { ...site, parameters });
}

function evaluate(source: string, given: Partial<KeyScope> = {}): unknown {
  return parse(source).evaluate({ ...scope, ...given });
}

function errorOf(run: () => unknown): LockKeyError {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(LockKeyError);
    return error as LockKeyError;
  }
  throw new Error('Nothing was thrown.');
}

describe('KeyTemplate', () => {
  it.each<[string, unknown]>([
    ['nightly-report', 'nightly-report'],
    ['a } b { c # d $ { } $', 'a } b { c # d $ { } $'],
    ['order:#{order.id}', 'order:42'],
    ['order:#{#order.id}', 'order:42'],
    ['#{ order . id }', '42'],
    ['#{\n\torder\n\t.id\n}', '42'],
    ['#{order.id}:#{line}', '42:7'],
    ['#{order.id}-x:#{line}.end', '42-x:7.end'],
    ['##{line}', '#7'],
    ['{#{line}}', '{7}'],
    ['#{p0.id}', '42'],
    ['#{p1}', '7'],
    ['#{args[0].id}', '42'],
    ['#{args?.[1]}', '7'],
    ['#{args[4][0]}', 'p4'],
    ['#{p2.deep.x}', 'x'],
    ['#{größe}', 'groß'],
    ["#{order['odd name']}", 'odd'],
    ['#{order["odd name"]}', 'odd'],
    ["#{ order [ 'lines' ] [ 0 ] . id }", '1'],
    ['#{order.lines[0].product.sku}', 'a%2Fb'],
    ['#{order.lines[1].product?.sku ?? "none"}', 'none'],
    ['#{order.lines[1].product?.maker.name ?? 0}', '0'],
    ['#{order.lines[1].product?.["sku"] ?? true}', 'true'],
    ['#{order.lines[9]?.id ?? -1.5}', '-1.5'],
    ['#{order.nothing?.x ?? false}', 'false'],
    ["#{order.nothing ?? 'a:b}c'}", 'a%3Ab}c'],
    ['#{order.note ?: "none"}', 'none'],
    ['#{order.missing ?: "none"}', 'none'],
    ['#{order.id ?: "none"}', '42'],
    ['#{order.id ?? "none"}', '42'],
    ['#{order.at}', '1970-01-01T00%3A00%3A00.000Z'],
    ['#{order.customer.name}', 'ANN'],
    ['#{order.customer.tags[1]}', 'eu'],
    ['#{order.customer.tags.length}', '2'],
    ['#{class}.#{method}', 'OrderService.pay'],
    ['#{class}#{method}-#{line}', 'OrderServicepay-7'],
    ['#{this.tenant}', 'acme'],
    ['#{this[0]}', 'zero'],
    ['#{request.params.id}', 'r1'],
    ["#{request['user']?.id ?? 'guest'}", 'guest'],
    ['#{ctx.region}', 'eu%3A1'],
    ['#{ctx.unknown ?? "none"}', 'none'],
    ['line:#{order.lines[*].id}', ['line:1', 'line:2']],
    ['#{order.customer.tags[*]}', ['vip', 'eu']],
    ['#{order.id}:#{order.lines[*].product?.sku ?? "none"}:#{line}', ['42:a%2Fb:7', '42:none:7']],
    ['#{order . lines [ * ] [ "id" ]}', ['1', '2']],
  ])('evaluates %s', (source, expected) => {
    expect(evaluate(source)).toEqual(expected);
  });

  it('accepts any array-like arguments', () => {
    const args: ArrayLike<unknown> = { length: 2, 0: { id: 1 }, 1: { id: 2 } };
    expect(evaluate('#{args[*].id}', { args })).toEqual(['1', '2']);
    expect(evaluate('#{order.id}', { args })).toBe('1');
  });

  it('evaluates everything except the items only once', () => {
    let reads = 0;
    const counted = {
      get id() {
        return ++reads;
      },
      lines: order.lines,
    };
    expect(evaluate('#{order.id}:#{order.lines[*].id}:#{order.id}', { args: [counted] })).toEqual(['1:1:2', '1:2:2']);
  });

  it('resolves a duplicate parameter name to the last one, as JavaScript does', () => {
    const template = parse('#{a}', ['a', 'a']);
    expect(template.evaluate({ self: undefined, args: [1, 2] })).toBe('2');
  });

  it('resolves parameters by position if names are unknown', () => {
    expect(parse('#{p0.id}:#{args[1]}', null).evaluate(scope)).toBe('42:7');
    expect(parse('#{p1}', ['x', 'p1']).evaluate(scope)).toBe('7');
    expect(parse('#{class}', null).evaluate(scope)).toBe('OrderService');
  });

  describe('before any call', () => {
    it.each<[string, Partial<KeyTemplate>]>([
      ['nightly', { usesRequest: false, usesParameters: false, contextNames: [], multiple: false }],
      ['#{class}.#{method}', { usesRequest: false, usesParameters: false, contextNames: [], multiple: false }],
      ['#{order.id}', { usesRequest: false, usesParameters: true }],
      ['#{p0}', { usesParameters: true }],
      ['#{args[0]}', { usesParameters: true }],
      ['#{this.tenant}', { usesParameters: true }],
      ['#{request.id}', { usesRequest: true, usesParameters: false }],
      ['#{ctx.a}:#{ctx.b}:#{ctx.a}', { usesRequest: false, usesParameters: false, contextNames: ['a', 'b'] }],
      ["#{ctx['a b']}", { contextNames: ['a b'] }],
      ['#{order.lines[*].id}', { multiple: true, usesParameters: true }],
    ])('reports what %s needs', (source, expected) => {
      expect(parse(source)).toMatchObject(expected);
    });
  });

  describe('parse() rejects', () => {
    it.each<[string, string]>([
      ['', 'must not be empty'],
      ['#{', "position 2: a '#{' is not closed"],
      ['a:#{order.id', "position 12: a '#{' is not closed"],
      ['#{order.id  ', "a '#{' is not closed"],
      ['#{}', 'position 2: expected the name of a parameter'],
      ['#{  }', 'expected the name of a parameter'],
      ['#{#}', 'expected the name of a parameter'],
      ['#{##order}', 'expected the name of a parameter'],
      ['#{0}', 'expected the name of a parameter'],
      ["#{'x'}", 'expected the name of a parameter'],
      ['#{order.}', 'position 7: expected a property'],
      ['#{order..id}', 'position 7: expected a property'],
      ['#{order.0}', 'position 7: expected a property'],
      ['#{order.#id}', 'position 7: expected a property'],
      ['#{order.id id}', 'position 10: expected a property'],
      ['#{order.id}}:#{line x}', 'expected a property'],
      ['#{order[]}', 'expected a property'],
      ['#{order[-1]}', 'expected a property'],
      ['#{order[1.5]}', 'expected a property'],
      ['#{order[line]}', 'expected a property'],
      ["#{order['a\\'b']}", 'expected a property'],
      ['#{order["a\']}', 'expected a property'],
      ['#{order.lines[1234567890]}', 'expected a property'],
      ['#{order?.[*]}', 'expected a property'],
      ['#{order.id()}', 'expected a property'],
      ['#{order.id + 1}', 'expected a property'],
      ['#{order.id = 1}', 'expected a property'],
      ['#{order.id, line}', 'expected a property'],
      ['#{order.id || 1}', 'expected a property'],
      ['#{new Order}', 'expected a property'],
      ['#{order.id ?? }', 'expected a property'],
      ['#{order.id ?? line}', 'expected a property'],
      ['#{order.id ?? null}', 'expected a property'],
      ['#{order.id ?? 1e3}', 'expected a property'],
      ['#{order.id ?? 007}', 'expected a property'],
      ['#{order.id ?? "a" ?? "b"}', 'expected a property'],
      ['#{order.id ?? ""}', 'is an empty string'],
      ['#{order.id ?? "\ud800"}', 'not well-formed'],
      [`#{order.id ?? ${'9'.repeat(400)}}`, 'Infinity'],
      [`#{order${'.a'.repeat(17)}}`, 'at most 16 steps'],
      ['#{order.lines[*].parts[*].id}', 'expected a property'],
      ['#{order.lines[*].id}:#{order.lines[*].id}', 'one [*]'],
      ['#{ordr.id}', "no parameter 'ordr' (its parameters are: order, line, (no name), größe)"],
      ['#{process.pid}', "no parameter 'process'"],
      ['#{globalThis.x}', "no parameter 'globalThis'"],
      ['#{toString}', "no parameter 'toString'"],
      ['#{p100}', "no parameter 'p100'"],
      ['#{p01}', "no parameter 'p01'"],
      ['#{this}', "'this' needs a property"],
      ['#{this[*].id}', "'this' needs a property"],
      ['#{args}', "'args' needs a property or an index"],
      ['#{request}', "'request' needs a property"],
      ['#{ctx}', "'ctx' needs a property"],
      ['#{ctx[*]}', "'ctx' needs a property"],
      ['#{class.name}', "'class' is a string"],
      ['#{method[*]}', "'method' is a string"],
      ['#{order.id}#{line}', 'write "#{order.id}:#{line}"'],
      ['a-#{order.id}-#{line}-b', 'write "a-#{order.id}:#{line}-b"'],
      ['#{order.id}%#{line}', 'write "#{order.id}:#{line}"'],
      ['#{order.id}|#{line}', 'write "#{order.id}:#{line}"'],
      ['#{order.id} of #{line}', 'write "#{order.id} of :#{line}"'],
      ['#{order.id}#{class}#{line}', 'write "#{order.id}#{class}:#{line}"'],
      ['#{order.lines[*].id}.#{line}', "two values need a ':' or '/'"],
      ['x'.repeat(4_097), 'longer than 4096'],
    ])('%s', (source, message) => {
      const error = errorOf(() => parse(source));
      expect(error.message).toContain(message);
      expect(error.message).toContain('OrderService.pay');
    });

    it.each(['__proto__', 'prototype', 'constructor'])('%s anywhere', (name) => {
      const forms = [name, `#${name}`, `order.${name}`, `order?.${name}.x`, `order['${name}']`, `order?.["${name}"]`];
      for (const form of [...forms, `this.${name}`, `ctx.${name}`, `request.${name}`, `order.lines[*].${name}`]) {
        expect(errorOf(() => parse(`#{${form}}`)).message).toContain(`'${name}' is never read`);
      }
    });

    it('an ambiguous name', () => {
      expect(errorOf(() => parse('#{request.id}', ['a', 'request'])).message).toContain('write p1 for the parameter');
      expect(errorOf(() => parse('#{method}', ['method'])).message).toContain('write p0');
      expect(errorOf(() => parse('#{p0}', ['x', 'p0'])).message).toContain('write p1');
      expect(parse('#{p1.id}', ['a', 'request']).usesRequest).toBe(false);
      expect(parse('nothing of it is used', ['class', 'request']).usesParameters).toBe(false);
    });

    it('an unknown name', () => {
      expect(errorOf(() => parse('#{order}', null)).message).toContain('names cannot be read');
      expect(errorOf(() => parse('#{order}', null)).message).toContain('use a position (#{p0} or #{args[0]})');
      expect(errorOf(() => parse('#{order}', [])).message).toContain('its parameters are: none');
    });

    it('a rest parameter, and shows how to write its items', () => {
      const { message } = errorOf(() => parse('#{ids}', ['tenant', '...ids']));
      expect(message).toContain("'ids' is a rest parameter: write #{args[1]} for its first item");
      expect(errorOf(() => parse('#{id}', ['...ids'])).message).toContain('its parameters are: ...ids');
    });

    it('the name of an anonymous class', () => {
      const anonymous = { ...site, className: '' };
      expect(errorOf(() => KeyTemplate.parse('#{class}', anonymous)).message).toContain('is an empty string');
    });

    it('a megabyte of text, with a short message', () => {
      expect(errorOf(() => parse('#{'.repeat(500_000))).message.length).toBeLessThan(200);
    });
  });

  describe('evaluate() rejects', () => {
    it.each<[string, string]>([
      ['#{order.missing}', '#{order.missing} in the lock key of OrderService.pay is undefined'],
      ['#{order.nothing}', 'is null'],
      ['#{order.note}', 'is an empty string'],
      ['#{order.note ?? "x"}', 'is an empty string'],
      [
        '#{order.nothing.x}',
        '#{order.nothing.x} in the lock key of OrderService.pay needs order.nothing, which is null',
      ],
      ['#{order.missing.x ?? "x"}', 'needs order.missing, which is undefined'],
      ['#{order.lines[5].id}', 'needs order.lines[5], which is undefined'],
      ['#{order.missing?.x}', 'is undefined'],
      ['#{order.lines[*].product.sku}', 'needs order.lines[*].product, which is undefined'],
      ['#{order.lines[*].product?.sku}', 'is undefined'],
      ['#{order.customer}', 'is an object'],
      ['#{order.lines}', 'is an object'],
      ['#{order.customer.greet}', 'is undefined'],
      ['#{order.toString}', 'is undefined'],
      ['#{order.hasOwnProperty}', 'is undefined'],
      ['#{order.empty[*]}', '#{order.empty[*]} in the lock key of OrderService.pay has an empty list'],
      ['#{order.many[*]}', 'has more than 100 items'],
      ['#{order.id[*]}', 'has no array before [*]'],
      ['#{order.missing[*]}', 'has no array before [*]'],
      ['#{order.missing?.x[*] ?? "x"}', 'has no array before [*]'],
      ['#{p9}', 'is undefined'],
      ['#{args[9]}', 'is undefined'],
      ['#{ctx.unknown}', 'is undefined'],
    ])('%s', (source, message) => {
      expect(errorOf(() => evaluate(source)).message).toContain(message);
    });

    it.each<[string, Partial<KeyScope>]>([
      ['undefined', { request: undefined }],
      ['null', { request: null }],
    ])('a request that is %s, regardless of the default', (_, given) => {
      const error = errorOf(() => evaluate('#{request?.id ?? "none"}', given));
      expect(error.message).toContain('OrderService.pay reads the request');
      expect(error.message).toMatch(/Nest 11 gateways.*need @UseInterceptors\(LockRequestInterceptor\)/);
    });

    it.each<[string, string]>([
      ['#{order.missing}', "write #{order.missing ?? 'none'}"],
      ['#{order.nothing}', "write #{order.nothing ?? 'none'}"],
      ['#{ order.note }', "write #{order.note ?: 'none'}"],
      ['#{order.note ?? "x"}', 'write ?: instead of ??'],
      ['#{p9}', "write #{p9 ?? 'none'}"],
      ['#{order.lines[*].product?.sku}', "write #{order.lines[*].product?.sku ?? 'none'}"],
    ])('%s, and suggests a default in the template', (source, remedy) => {
      expect(errorOf(() => evaluate(source)).message).toContain(remedy);
    });

    it("an omitted parameter, even if the method's signature has a default", () => {
      const { message } = errorOf(() => evaluate('#{line}', { args: [order] }));
      expect(message).toBe(
        "#{line} in the lock key of OrderService.pay is undefined. Make sure it is set, or write #{line ?? 'none'}. " +
          "A default in the method's signature applies only inside the method.",
      );
      expect(errorOf(() => evaluate('#{order.missing}')).message).not.toContain('signature');
    });

    it('a context value without resolvers', () => {
      expect(errorOf(() => evaluate('#{ctx.region}', { context: undefined })).message).toContain('is undefined');
    });

    it.each<[string, Partial<KeyScope>]>([
      ['#{order.customer.broken}', {}],
      ['#{order.customer.broken ?? "x"}', {}],
      ['#{args[*].broken}', { args: [order.customer] }],
      ['#{request.broken}', { request: order.customer }],
      ['#{ctx.id}', { context: () => order.customer.broken }],
    ])('%s, which throws, and keeps the error as its cause', (source, given) => {
      const error = errorOf(() => evaluate(source, given));
      expect(error.cause).toEqual(new TypeError('no name'));
      expect(error.message).toContain(source.slice(2, -1));
      expect(error.message).toContain('OrderService.pay');
    });
  });

  describe('the warning about a constant key that names a parameter in another template syntax', () => {
    it.each<[string, string]>([
      ['x:{line}', 'x:#{line}'],
      ['x:{ order.id }:{#line}', 'x:#{order.id}:#{line}'],
      ['o:<line>', 'o:#{line}'],
      ['o:#order.id', 'o:#{order.id}'],
      ['o:$line', 'o:#{line}'],
      ['o::line', 'o:#{line}'],
      [':line/x', '#{line}/x'],
      ['orders/:line', 'orders/#{line}'],
      ['o:line', 'o:#{line}'],
      ['line', '#{line}'],
      ['o:%s', 'o:#{order}'],
      ['o:%s/%s', 'o:#{order}/#{line}'],
      ['#{class}:{line}', '#{class}:#{line}'],
    ])('is returned for %s', (source, meant) => {
      expect(parse(source).warning).toBe(
        `Key template ${JSON.stringify(source)} of OrderService.pay is the same for all calls, although the method has parameters: write ${JSON.stringify(meant)} if each value needs its own lock.`,
      );
    });

    it('names a parameter by position if it has no name of its own', () => {
      expect(parse('o:%s:%s:%s', [null, '...rest']).warning).toContain('write "o:#{p0}:#{p1}:%s"');
      expect(parse('o:%s:{id}', []).warning).toBeUndefined();
    });

    it.each([
      'o:#other',
      'o:lines',
      'no line',
      '{orders}:list',
      'a{b',
      '{}',
      '{0}',
      '{"order":1}',
      '100%',
      'a:$',
      'c#',
      '<b>',
    ])('is not returned for %s, which names no parameter', (source) => expect(parse(source).warning).toBeUndefined());

    it.each(['#{order.id}:line', 'line:#{line}', '{order}:#{line}', "#{order.missing ?? '{line}'}"])(
      'is not returned for %s, which is not constant',
      (source) => expect(parse(source).warning).toBeUndefined(),
    );
  });
});
