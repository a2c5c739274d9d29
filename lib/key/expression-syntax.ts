import type { LockKeyError } from '../api/errors.js';

/** `.name`, `?.name`, `[0]` or `['name']`. */
export interface PropertyStep {
  readonly name: string | number;
  /**
   * Whether the path ends without an error if the value before this step is `undefined` or `null`, as in JavaScript.
   */
  readonly optional: boolean;
  /** The expression's source before this step, for messages. */
  readonly holder: string;
}

/** The text between `#{` and `}`, such as `order.lines[*].product?.id ?? 'none'`. */
export interface ExpressionSyntax {
  /** The expression's source, for messages. */
  readonly text: string;
  readonly root: string;
  readonly path: readonly PropertyStep[];
  /** The path after `[*]`, which applies to each item; `null` without `[*]`. */
  readonly itemPath: readonly PropertyStep[] | null;
  /** `??` replaces `undefined` and `null`; `?:` also replaces `''`. */
  readonly fallback: { readonly operator: '??' | '?:'; readonly value: string | number | boolean } | null;
}

/** Creates the error for a problem in a template's source. */
export type ErrorAt = (problem: string, position: number) => LockKeyError;

const MAX_STEPS = 16;

// These names lead from a value to its class, and from there to everything else. They are rejected even as own
// properties.
const REFUSED_NAMES: ReadonlySet<string | number> = new Set(['__proto__', 'prototype', 'constructor']);

// Sticky, so that each token must start where the previous one ended. Unbounded repetitions are never adjacent, so
// matching takes linear time.
const ROOT = /\s*#?(?<name>[\p{ID_Start}$_][\p{ID_Continue}$]*)/uy;
const PROPERTY = /\s*(?<dot>\??\.)\s*(?<name>[\p{ID_Start}$_][\p{ID_Continue}$]*)/uy;
const INDEX = /\s*(?:(?<dot>\?\.)\s*)?\[\s*(?:(?<index>\d{1,9})|(['"])(?<name>[^'"\\]*)\3)\s*\]/y;
const EVERY = /\s*\[\s*\*\s*\]/y;
const DEFAULT =
  /\s*(?<operator>\?\?|\?:)\s*(?:(['"])(?<text>[^'"\\]*)\2|(?<json>-?(?:0|[1-9]\d*)(?:\.\d+)?|true|false))/y;
const END = /\s*\}/y;

/**
 * Parses one expression of a key template:
 *
 * ```text
 * expression = ["#"] name { step } [ "[*]" { step } ] [ ("??" | "?:") literal ] "}"
 * step       = "." name | "?." name | ["?."] "[" (integer | string) "]"
 * literal    = string | number | "true" | "false"
 * ```
 *
 * Expressions can't call, assign, or nest anything: they only refer to a value. Strings use single or double quotes and
 * can't contain quotes or backslashes.
 *
 * @param start the position after `#{`
 * @returns the expression, and the position after its `}`
 */
export function parseExpression(source: string, start: number, errorAt: ErrorAt): [ExpressionSyntax, number] {
  const parser = new Parser(source, start, errorAt);
  return [parser.parse(), parser.position];
}

class Parser {
  position: number;

  constructor(
    private readonly source: string,
    private readonly start: number,
    private readonly errorAt: ErrorAt,
  ) {
    this.position = start;
  }

  parse(): ExpressionSyntax {
    const root = this.#take(ROOT)?.['name'];
    if (root === undefined) throw this.#expected('the name of a parameter');
    this.#checkName(root);
    const path = this.#steps();
    const itemPath = this.#take(EVERY) === undefined ? null : this.#steps();
    const fallback = this.#fallback();
    const text = this.#text;
    if (this.#take(END) === undefined) throw this.#expected("a property, a default, or '}'");
    return { text, root, path, itemPath, fallback };
  }

  #steps(): PropertyStep[] {
    const steps: PropertyStep[] = [];
    for (;;) {
      const holder = this.#text;
      const step = this.#take(PROPERTY) ?? this.#take(INDEX);
      if (step === undefined) return steps;
      const name = step['name'] ?? Number(step['index']);
      this.#checkName(name);
      if (steps.push({ name, optional: step['dot'] === '?.', holder }) > MAX_STEPS) {
        throw this.errorAt(`a path has at most ${MAX_STEPS} steps`, this.position);
      }
    }
  }

  #fallback(): ExpressionSyntax['fallback'] {
    const fallback = this.#take(DEFAULT);
    if (fallback === undefined) return null;
    const value = fallback['text'] ?? (JSON.parse(fallback['json'] ?? '') as number | boolean);
    return { operator: fallback['operator'] === '??' ? '??' : '?:', value };
  }

  #checkName(name: string | number): void {
    if (REFUSED_NAMES.has(name)) throw this.errorAt(`'${name}' is never read`, this.position);
  }

  /** Consumes the token if it comes next and returns its named groups. */
  #take(token: RegExp): Partial<Record<string, string>> | undefined {
    token.lastIndex = this.position;
    const match = token.exec(this.source);
    if (match === null) return undefined;
    this.position = token.lastIndex;
    return match.groups ?? {};
  }

  get #text(): string {
    return this.source.slice(this.start, this.position).trim();
  }

  #expected(what: string): LockKeyError {
    const isOpen = this.source.slice(this.position).trim() === '';
    return this.errorAt(isOpen ? "a '#{' is not closed: write the missing '}'" : `expected ${what}`, this.position);
  }
}
