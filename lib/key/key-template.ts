import { LockKeyError } from '../api/errors.js';
import { templateMeantBy } from './constant-key.js';
import { parseExpression, type ErrorAt } from './expression-syntax.js';
import { Expression } from './expression.js';
import { separatesValues } from './key-value.js';
import { MAX_KEY_BYTES, type LockKey } from './lock-key.js';
import { quote } from './quote.js';
import { resolveRoot, type KeyScope, type KeySite } from './scope.js';

/** Literal text, or an expression. */
type Piece = string | Expression;

const NO_CALL: KeyScope = { self: undefined, args: [] };

/**
 * A key with placeholders for values, such as `order:#{order.id}`. Parsed when the method is decorated, and evaluated
 * for each call.
 *
 * Values that differ as text never produce the same key, because values are encoded and separated. The text around the
 * expressions is used as is. It has no escapes, so it cannot contain `#{`.
 */
export class KeyTemplate {
  /** Whether the template reads the request, which exists only in a handler. */
  readonly usesRequest: boolean;
  /** Whether the template reads the arguments or `this`, which exist only once the method is called. */
  readonly usesParameters: boolean;
  /** The names used as `ctx.name`. The module must define each of them. */
  readonly contextNames: readonly string[];
  /** Whether the template produces a key for each item of a list. */
  readonly multiple: boolean;
  /** The key, if it is the same for all calls. */
  readonly fixed: string | undefined;
  /** Describes a probable mistake in a valid template. */
  readonly warning: string | undefined;
  readonly #list: Expression | undefined;
  readonly #head: readonly Piece[];
  readonly #tail: readonly Piece[];

  private constructor(pieces: readonly Piece[], source: string, { method, parameters }: KeySite) {
    const expressions = pieces.filter(isExpression);
    this.fixed = expressions.length === 0 ? join(pieces, NO_CALL) : undefined;
    const meant = this.fixed === undefined ? undefined : templateMeantBy(source, parameters ?? []);
    if (meant !== undefined) {
      this.warning = `Key template ${quote(source)} of ${method} is the same for all calls, although the method has parameters: write ${quote(meant)} if each value needs its own lock.`;
    }
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

  /**
   * @throws LockKeyError for a template that could never produce a key, or could produce the same key from different
   * values
   */
  static parse(source: string, site: KeySite): KeyTemplate {
    const errorAt: ErrorAt = (problem, position) =>
      new LockKeyError(`Key template ${quote(source)} of ${site.method}, position ${position}: ${problem}`);
    if (source === '') throw errorAt('a key must not be empty', 0);
    // In a quoted string, `${id}` is plain text, so all calls would share one key.
    if (source.includes('${')) throw errorAt("'${' has no meaning here: write '#{'", source.indexOf('${'));
    if (source.length > MAX_KEY_BYTES) throw errorAt(`it is longer than ${MAX_KEY_BYTES} characters`, MAX_KEY_BYTES);
    return new KeyTemplate(parsePieces(source, site, errorAt), source, site);
  }

  /** A call's key, or its keys if the template has a list. */
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

/** The template with the punctuation between two values replaced by a separator. */
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
