import { LockKeyError } from '../api/errors.js';
import type { ExpressionSyntax, PropertyStep } from './expression-syntax.js';
import { encodeKeyValue } from './key-value.js';
import { MAX_KEYS } from './lock-key.js';
import { readItems, readProperty } from './property.js';
import type { KeyScope, Root } from './scope.js';

/** A key template's expression, with its first name resolved. */
export class Expression {
  readonly #fallback: string | null;

  /** @param method the name of the decorated method, for messages */
  constructor(
    readonly syntax: ExpressionSyntax,
    readonly root: Root,
    private readonly method: string,
  ) {
    const { fallback } = syntax;
    this.#fallback = fallback && encodeKeyValue(fallback.value, () => `The default in ${this.#describe()}`);
  }

  /** The encoded value. */
  value(scope: KeyScope): string {
    try {
      return this.#encode(this.#follow(this.root.path, this.root.read(scope)));
    } catch (error) {
      throw this.#keyError(error);
    }
  }

  /** The list's encoded values, at least one. */
  values(scope: KeyScope): readonly string[] {
    try {
      const items = readItems(this.#follow(this.root.path, this.root.read(scope)), MAX_KEYS + 1);
      if (items === undefined)
        throw new LockKeyError(`${this.#describe()} has no array before [*]: pass a list, or remove [*]`);
      if (items.length === 0)
        throw new LockKeyError(
          `${this.#describe()} has an empty list, which locks nothing: pass at least one item, or skip the call`,
        );
      if (items.length > MAX_KEYS) throw new LockKeyError(`${this.#describe()} has more than ${MAX_KEYS} items`);
      return items.map((item) => this.#encode(this.#follow(this.syntax.itemPath ?? [], item)));
    } catch (error) {
      throw this.#keyError(error);
    }
  }

  #follow(path: readonly PropertyStep[], start: unknown): unknown {
    let value = start;
    for (const { name, optional, holder } of path) {
      if (value === undefined || value === null) {
        if (optional) return undefined;
        throw new LockKeyError(`${this.#describe()} needs ${holder}, which is ${value}: use ?. and a default`);
      }
      value = readProperty(value, name);
    }
    return value;
  }

  #encode(value: unknown): string {
    const isAbsent = value === undefined || value === null;
    if (!isAbsent && value !== '') return encodeKeyValue(value, this.#describe);
    const { text, fallback, path } = this.syntax;
    if (this.#fallback !== null && (isAbsent || fallback?.operator === '?:')) return this.#fallback;
    const remedy = fallback ? 'write ?: instead of ??' : `write #{${text} ${isAbsent ? '??' : '?:'} 'none'}`;
    const isLeftOut = value === undefined && path.length === 0;
    throw new LockKeyError(
      `${this.#describe()} is ${isAbsent ? value : 'an empty string'}. Make sure it is set, or ${remedy}.` +
        (isLeftOut ? " A default in the method's signature applies only inside the method." : ''),
    );
  }

  readonly #describe = (): string => `#{${this.syntax.text}} in the lock key of ${this.method}`;

  // The application's getters, resolvers, and Proxies may throw anything.
  #keyError(error: unknown): LockKeyError {
    return error instanceof LockKeyError
      ? error
      : new LockKeyError(`${this.#describe()} threw; see the cause`, { cause: error });
  }
}
