import fc from 'fast-check';
import { KeyTemplate } from '../../lib/key/key-template.js';
import { normalizeKeys } from '../../lib/key/lock-key.js';
import type { KeyScope, KeySite } from '../../lib/key/scope.js';
import { LockKeyError } from '../../lib/api/errors.js';
import { exploration } from '../exploration.js';

const site: KeySite = { method: 'Service.run', className: 'Service', methodName: 'run', parameters: ['a', 'b', 'c'] };

/** Returns the result or the LockKeyError. Any other error fails the test. */
function attempt<T>(run: () => T): T | LockKeyError {
  try {
    return run();
  } catch (error) {
    expect(error).toBeInstanceOf(LockKeyError);
    return error as LockKeyError;
  }
}

const throwing = (): never => {
  throw new Error('Thrown by the value.');
};

const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable([], {});
  revoke();
  return proxy;
};

const hostileText = fc.constantFrom(
  '__proto__',
  'constructor',
  'prototype',
  '\r\nDEL *',
  '\0',
  '{}',
  '{tag}',
  '/..',
  '..',
  '%00',
  '%3A',
  ':',
  '#{a}',
  '\ud800',
  '\udfff',
  '\u202e',
  '\ufeff',
  '😀',
  'e\u0301',
  'é',
  'x'.repeat(1_000_000),
);

// Factories, because fast-check inspects the values it generates, and some of these throw when inspected.
const hostile: fc.Arbitrary<() => unknown> = fc.oneof(
  hostileText.map((text) => () => text),
  fc.string({ unit: 'binary' }).map((text) => () => text),
  fc
    .anything({ withBigInt: true, withDate: true, withMap: true, withNullPrototype: true, withSparseArray: true })
    .map((value) => () => value),
  fc.constantFrom<(() => unknown)[]>(
    () => ({ toString: () => 'x', valueOf: () => 1 }),
    () => ({ [Symbol.toPrimitive]: throwing }),
    () => ({ toString: throwing, toJSON: throwing }),
    () => Object.defineProperty({}, 'id', { get: throwing }),
    () => Symbol('x'),
    () => Symbol.iterator,
    () => throwing,
    () => class Id {},
    () => revoked(),
    () => new Proxy({}, { get: throwing }),
    () => new Proxy({}, { getOwnPropertyDescriptor: throwing }),
    () => new Proxy({}, { getPrototypeOf: throwing }),
    () => new Proxy({}, { has: throwing, ownKeys: throwing }),
    () => new Proxy([1], { get: (_, name) => (name === 'length' ? Number.POSITIVE_INFINITY : 1) }),
    () => new Proxy([1], { get: (_, name) => (name === 'length' ? Symbol('length') : 1) }),
    () => new Array<string>(5),
    () => new Array<string>(1e9),
    () => new Date(Number.NaN),
    () => new Map([['id', 1]]),
    () => JSON.parse('{"__proto__": {"id": 1}, "constructor": {"prototype": {"id": 2}}}') as unknown,
  ),
);

describe('KeyTemplate (fuzzed)', () => {
  const fragment = fc.constantFrom(
    ...['#{', '}', 'a', 'b', 'p0', 'args', 'this', 'ctx', 'request', 'class', '.id', '?.id', '[0]', "['x']", '[*]'],
    ...[
      '??',
      '?:',
      "'x'",
      '""',
      '1',
      'true',
      ' ',
      ':',
      '-',
      '#',
      '$',
      '{',
      '[',
      ']',
      '(',
      ')',
      '\\',
      '\ud800',
      '__proto__',
    ],
  );
  const noise = fc.array(fragment, { maxLength: 12 }).map((fragments) => fragments.join(''));
  const expression = fc
    .tuple(
      fc.constantFrom('a', '#b', 'p0', 'args', 'this', 'ctx', 'request', 'class'),
      fc.array(fc.constantFrom('.id', '?.id', '[0]', '?.[0]', "['x']", '.length', '[*]', ' '), { maxLength: 4 }),
      fc.constantFrom('', '', '', "?? 'x'", '?: 1'),
    )
    .map(([root, steps, fallback]) => `#{${root}${steps.join('')}${fallback}}`);
  const source = fc.oneof(
    fc.string({ unit: 'binary' }),
    noise,
    noise.map((text) => `#{${text}}`),
    fc.array(expression, { minLength: 1, maxLength: 3 }).map((expressions) => expressions.join(':')),
    fc.tuple(noise, expression, noise).map((parts) => parts.join('')),
  );

  it('parses and evaluates any text or throws a LockKeyError', () => {
    let evaluated = 0;
    fc.assert(
      fc.property(source, hostile, hostile, fc.boolean(), (text, x, y, nested) => {
        const a = (): unknown => (nested ? { id: x(), 0: [x(), { id: y() }], x: [y()] } : x());
        const b = (): unknown => (nested ? [{ id: y() }, { id: x() }] : y());
        const template = attempt(() => KeyTemplate.parse(text, site));
        if (template instanceof LockKeyError) return;
        const scope: KeyScope = { self: a(), args: [a(), b()], request: b(), context: a };
        const key = attempt(() => template.evaluate(scope));
        if (key instanceof LockKeyError) return;
        evaluated++;
        attempt(() => normalizeKeys(key));
      }),
      { numRuns: exploration(1_500, 50_000) },
    );
    expect(evaluated).toBeGreaterThan(100);
  });

  const templates = [
    '#{a}',
    '#{a.id}',
    '#{a.id.id ?? "x"}',
    '#{a?.id ?: 1}',
    '#{a[0]}',
    '#{a.length}',
    '#{a[*]}:#{b}',
    '#{a[*].id}',
    '#{args[*]}',
    '#{this.id}',
    '#{request.id}',
    '#{ctx.id}',
  ].map((text) => KeyTemplate.parse(text, site));

  it('turns any values into well-formed keys without control characters, or throws a short LockKeyError', () => {
    fc.assert(
      fc.property(fc.constantFrom(...templates), hostile, hostile, fc.boolean(), (template, a, b, nested) => {
        const value = nested ? { id: a(), 0: a(), length: a() } : a();
        const key = attempt(() =>
          template.evaluate({ self: value, args: [value, b()], request: value, context: () => value }),
        );
        if (key instanceof LockKeyError) {
          expect(key.message.length).toBeLessThan(300);
        } else {
          for (const each of [key].flat()) expect(each).not.toMatch(/[\p{Cc}\p{Surrogate}]|#\{/u);
        }
      }),
      { numRuns: exploration(1_000, 30_000) },
    );
  });

  it('never creates the same key from different values', () => {
    // Few characters, but significant ones, so that values and literals collide wherever they can.
    const characters = ['1', '-', ':', '%', '3', 'A'];
    const values = [...characters, ...characters.flatMap((first) => characters.map((second) => first + second))];
    const literal = fc.string({ unit: fc.constantFrom('-', ':', '%3A', '1', '.'), maxLength: 3 });
    let parsed = 0;
    fc.assert(
      fc.property(literal, literal, literal, (before, between, after) => {
        const text = `${before}#{a}${between}#{b}${after}`;
        const template = attempt(() => KeyTemplate.parse(text, site));
        if (template instanceof LockKeyError) return;
        parsed++;
        const keys = values.flatMap((a) => values.map((b) => template.evaluate({ self: undefined, args: [a, b] })));
        expect(new Set(keys).size).toBe(values.length ** 2);
      }),
    );
    expect(parsed).toBeGreaterThan(0);
  });

  it('two templates create the same key only from the same parts between : and /', () => {
    const literal = fc.constantFrom('', 'order', '1', 'a-b', 'x.', '@');
    const separator = fc.constantFrom(':', '/');
    const value = fc.oneof(
      fc.constantFrom('1', ':', '/', '%', '%3A', 'a:b', 'a/b', 'order', '#', '#{a}', '\n', 'é', '😀', 'ann@x.org'),
      fc.string({ unit: 'grapheme', minLength: 1, maxLength: 4 }),
    );
    // A part is a literal, or a value delimited by separators.
    const part = fc.oneof(
      literal.map((text) => ({ text, value: undefined as string | undefined })),
      value.map((text) => ({ text: '', value: text })),
    );
    const written = fc.array(fc.tuple(part, separator), { minLength: 1, maxLength: 3 }).map((parts) => {
      const names = ['a', 'b', 'c'];
      const args = parts.flatMap(([{ value: text }]) => text ?? []);
      let next = 0;
      let source = '';
      let expected = '';
      for (const [{ text, value: inserted }, end] of parts) {
        source += (inserted === undefined ? text : `#{${names[next++]!}}`) + end;
        expected += JSON.stringify(inserted ?? text) + end;
      }
      return { source, args, expected };
    });
    fc.assert(
      fc.property(written, written, (one, other) => {
        const [first, second] = [one, other].map(({ source, args }) =>
          attempt(() => KeyTemplate.parse(source, site).evaluate({ self: undefined, args })),
        );
        if (first instanceof LockKeyError || second instanceof LockKeyError) return;
        expect(first === second).toBe(one.expected === other.expected);
      }),
      { numRuns: exploration(2_000, 50_000) },
    );
  });

  it('cannot access inherited properties', () => {
    const inherited = [Object, Array, Function, String, Number, Date, Map, Promise, RegExp]
      .flatMap(({ prototype }) => Object.getOwnPropertyNames(prototype))
      .filter((name) => !['length', 'name', 'constructor', 'size', '__proto__', 'prototype'].includes(name))
      .filter((name) => typeof Object.getOwnPropertyDescriptor(RegExp.prototype, name)?.get !== 'function');
    const owners = [
      {},
      [],
      () => 1,
      'text',
      1,
      new Date(0),
      new Map(),
      Promise.resolve(),
      Object.create({ inherited: 1 }) as object,
    ];
    fc.assert(
      fc.property(fc.constantFrom('inherited', ...inherited), fc.constantFrom<unknown>(...owners), (name, owner) => {
        const template = KeyTemplate.parse(`#{a['${name}'] ?? 'absent'}`, site);
        expect(template.evaluate({ self: undefined, args: [owner] })).toBe('absent');
      }),
      { numRuns: exploration(500, 10_000) },
    );
  });

  it.each<[string, string]>([
    ['repeated openings', '#{'.repeat(500_000)],
    ['an endless path', `#{a${'.a'.repeat(500_000)}}`],
    ['whitespace', `#{a${' '.repeat(1_000_000)}x`],
    ['whitespace at the limit', `#{a${' '.repeat(4_000)}x}`],
    ['dots after whitespace at the limit', `#{a${' ?. '.repeat(1_000)}x}`],
    ['an unterminated string at the limit', `#{a ?? '${'x'.repeat(4_000)}}`],
    ['brackets at the limit', `#{a${'['.repeat(4_000)}`],
    ['the maximum number of expressions', '#{a}:'.repeat(819)],
  ])('parses %s in bounded time', (_, text) => {
    const begin = performance.now();
    attempt(() => KeyTemplate.parse(text, site));
    expect(performance.now() - begin).toBeLessThan(5_000);
  });
});
