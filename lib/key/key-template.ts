import { LockKeyError } from '../api/errors.js';
import { parseExpression, type ErrorAt } from './expression-syntax.js';
import { Expression } from './expression.js';
import { separatesValues } from './key-value.js';
import { MAX_KEY_BYTES, type LockKey } from './lock-key.js';
import { quote } from './quote.js';
import { resolveRoot, type KeyScope, type KeySite } from './scope.js';

/** A literal text, or an expression. */
type Piece = string | Expression;

const NO_CALL: KeyScope = { self: undefined, args: [] };

/**
 * A key with places for values: `order:#{order.id}`. Parsed once, when the method is decorated; evaluated for each call.
 *
 * Values that differ as text never make the same key: they are encoded, and two of them have a separator between them.
 * The text around the expressions is taken as it is. It has no escapes, so that `#{` itself cannot be part of it: where a
 * key needs it, a key function writes it.
 */
export class KeyTemplate {
  /** Whether the template reads the request, which only a handler has. */
  readonly usesRequest: boolean;
  /** Whether the template reads the arguments or `this`, which exist only once the method is called. */
  readonly usesParameters: boolean;
  /** The names behind `ctx`, each of which the module must know. */
  readonly contextNames: readonly string[];
  /** Whether the template makes a key for each item of a list. */
  readonly multiple: boolean;
  /** The key, if it is the same for all calls. */
  readonly fixed: string | undefined;
  /** Mistakes that are probable, although the template can make keys. */
  readonly warnings: readonly string[];
  readonly #list: Expression | undefined;
  readonly #head: readonly Piece[];
  readonly #tail: readonly Piece[];

  private constructor(pieces: readonly Piece[], warnings: readonly string[]) {
    this.warnings = warnings;
    const expressions = pieces.filter(isExpression);
    this.fixed = expressions.length === 0 ? join(pieces, NO_CALL) : undefined;
    const kinds = new Set(expressions.map(({ root }) => root.kind));
    this.usesRequest = kinds.has('request');
    this.usesParameters = kinds.has('parameter');
    this.contextNames = [...new Set(expressions.flatMap(({ root }) => root.contextName ?? []))];

    this.#list = expressions.find(isMultiple);
    this.multiple = this.#list !== undefined;
    const split = this.#list === undefined ? pieces.length : pieces.indexOf(this.#list);
    this.#head = pieces.slice(0, split);
    this.#tail = pieces.slice(split + 1);
  }

  /** @throws LockKeyError for a template that could never make a key, or could make the same one of different values */
  static parse(source: string, site: KeySite): KeyTemplate {
    const errorAt: ErrorAt = (problem, position) =>
      new LockKeyError(`Key template ${quote(source)} of ${site.method}, position ${position}: ${problem}`);
    if (source === '') throw errorAt('a key must not be empty', 0);
    // In a quoted string `${id}` is plain text, and all calls would share one key.
    if (source.includes('${')) throw errorAt("'${' has no meaning here: write '#{'", source.indexOf('${'));
    if (source.length > MAX_KEY_BYTES) throw errorAt(`it is longer than ${MAX_KEY_BYTES} characters`, MAX_KEY_BYTES);
    const pieces = parsePieces(source, site, errorAt);
    const texts = pieces.flatMap((piece) => (isExpression(piece) ? [] : piece));
    const names = namesNotRead(pieces, site);
    const constants = [
      ...texts.flatMap((text) => withoutSign(text, site, errorAt)),
      ...texts.flatMap((text, index) => withoutBraces(index === 0 ? `:${text}` : text, names)),
    ];
    const warnings = constants.map(
      ([written, meant]) =>
        `Key template ${quote(source)} of ${site.method} has the text ${written}, which is the same for all calls: write #{${meant}} for its value.`,
    );
    return new KeyTemplate(pieces, warnings);
  }

  /** The key of one call, or the keys of one for each item of the list. */
  evaluate(scope: KeyScope): LockKey {
    const head = join(this.#head, scope);
    if (this.#list === undefined) return head;
    const tail = join(this.#tail, scope);
    return this.#list.values(scope).map((value) => head + value + tail);
  }
}

function parsePieces(source: string, site: KeySite, errorAt: ErrorAt): readonly Piece[] {
  const pieces: Piece[] = [];
  let literal = '';
  let position = 0;
  for (let open = source.indexOf('#{'); open !== -1; open = source.indexOf('#{', position)) {
    literal += source.slice(position, open);
    const [syntax, end] = parseExpression(source, open + 2, errorAt);
    const root = resolveRoot(syntax, site, (problem) => errorAt(problem, open));
    const expression = new Expression(syntax, root, site.method);
    if (root.kind === 'constant') {
      literal += expression.value(NO_CALL);
    } else {
      const before = pieces.filter(isExpression);
      if (before.length > 0 && !separatesValues(literal)) {
        throw errorAt(
          "two values need a ':' or '/' between them, or 1 and 23 would make the same key as 12 and 3: " +
            `write ${quote(corrected(source, position, open))}`,
          open,
        );
      }
      if (isMultiple(expression) && before.some(isMultiple)) throw errorAt('a template has at most one [*]', open);
      pieces.push(literal, expression);
      literal = '';
    }
    position = end;
  }
  return [...pieces, literal + source.slice(position)];
}

/** The texts in braces that are plain text, but would be an expression of this method with a `#` before them. */
function withoutSign(literal: string, site: KeySite, errorAt: ErrorAt): [written: string, meant: string][] {
  return Array.from(literal.matchAll(/\{/g)).flatMap(({ index }) => {
    try {
      const [syntax] = parseExpression(literal, index + 1, errorAt);
      resolveRoot(syntax, site, (problem) => errorAt(problem, index));
      return [[`{${syntax.text}}`, syntax.text]];
    } catch {
      return [];
    }
  });
}

// `#` and `$` anywhere but in braces, and a `:` that follows a separator: after a value or a word it is the separator itself.
const WITHOUT_BRACES =
  /(?<sign>(?<!\{\s*)[#$]|(?<=[:/]):)(?<name>[\p{ID_Start}_][\p{ID_Continue}$]*)(?<path>(?:\??\.[\p{ID_Start}_][\p{ID_Continue}$]*)*)/gu;

/** The texts that name a parameter of the method as other templates do: `#id`, `$id`, `:id`. */
function withoutBraces(literal: string, names: readonly string[]): [written: string, meant: string][] {
  return Array.from(literal.matchAll(WITHOUT_BRACES)).flatMap(
    ({ 0: written, groups: { name = '', path = '' } = {} }) => (names.includes(name) ? [[written, name + path]] : []),
  );
}

/** The parameters whose values are not in the key: beside such a value its name is a label. */
function namesNotRead(pieces: readonly Piece[], { parameters }: KeySite): string[] {
  const read = new Set(pieces.filter(isExpression).map(({ syntax }) => syntax.root));
  return (parameters ?? []).flatMap((name) => (name === null || read.has(name) ? [] : [name]));
}

/** The template with a separator between two values; punctuation that is no separator gives way to it. */
function corrected(source: string, end: number, open: number): string {
  const between = source.slice(end, open);
  return `${source.slice(0, end)}${/^[^\w#]*$/.test(between) ? '' : between}:${source.slice(open)}`;
}

function isMultiple({ syntax }: Expression): boolean {
  return syntax.itemPath !== null;
}

function join(pieces: readonly Piece[], scope: KeyScope): string {
  let key = '';
  for (const piece of pieces) key += typeof piece === 'string' ? piece : piece.value(scope);
  return key;
}

function isExpression(piece: Piece): piece is Expression {
  return typeof piece !== 'string';
}
