import { LockKeyError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import type { KeyFunction } from '../../key/key-function.js';
import { KeyTemplate } from '../../key/key-template.js';
import type { LockKey } from '../../key/lock-key.js';
import { parameterNamesOf } from '../../key/parameter-names.js';
import type { KeyScope } from '../../key/scope.js';

/** The key as passed to a decorator: a template, several templates, or a function of the method's arguments. */
export type KeySource = string | readonly string[] | KeyFunction<never[]>;

/** A decorated method's key, read at decoration: templates, or a function of the arguments. */
export class MethodKey {
  /**
   * Errors are collected and listed at boot. If decorators threw them, the first one would hide the others.
   */
  readonly errors: LockKeyError[] = [];
  /** The templates as written, or `null` for a function. */
  readonly template: string | null = null;
  /** All templates; empty for a function. */
  readonly templates: readonly string[] = [];
  readonly #templates: KeyTemplate[] = [];
  readonly #function: ((...args: never[]) => LockKey) | undefined;

  /** @param method the method's name in messages, such as `OrderService.pay` */
  constructor(
    private readonly method: string,
    /** The key as written. */
    readonly source: KeySource,
    target: object,
    methodName: string | symbol,
    original: (...args: never[]) => unknown,
  ) {
    if (typeof source === 'function') {
      this.#function = source;
      return;
    }
    const templates = templatesOf(source);
    this.templates = templates;
    this.template = templates.join(', ');
    if (templates.length === 0) {
      this.errors.push(
        new LockKeyError(
          `${method} has no lock key: pass @DistributedLock a template such as 'order:#{order.id}', several templates, or a function of the arguments.`,
        ),
      );
    }
    const owner = target.constructor;
    const parameters = parameterNamesOf(original, owner, methodName);
    const site = { method, className: owner.name, methodName: String(methodName), parameters };
    for (const template of templates) {
      try {
        this.#templates.push(KeyTemplate.parse(template, site));
      } catch (error) {
        if (!(error instanceof LockKeyError)) throw error;
        this.errors.push(error);
      }
    }
  }

  /** A call's key or keys. @throws LockKeyError */
  of(scope: KeyScope): LockKey {
    if (this.#function) {
      const key: unknown = this.#function.apply(scope.self, Array.from(scope.args) as never[]);
      if (typeof key === 'string' || Array.isArray(key)) return key as LockKey;
      throw new LockKeyError(
        `The key function of ${this.method} returned ${shown(key)}, but a lock key must be a string or a list of strings: build it with lockKey, for example (order) => lockKey\`order:\${order.id}\`.`,
      );
    }
    const [error] = this.errors;
    if (error) throw error;
    const [first, second] = this.#templates;
    if (first && !second) return first.evaluate(scope);
    return this.#templates.flatMap((template) => template.evaluate(scope));
  }

  /** Probable mistakes in templates that can produce keys. */
  get warnings(): readonly string[] {
    return this.#templates.flatMap(({ warning }) => warning ?? []);
  }

  /** The names that the templates read as `#{ctx.name}`. */
  get contextNames(): readonly string[] {
    return this.#templates.flatMap((template) => template.contextNames);
  }

  /** The key, if it is the same for all calls. */
  get fixed(): string | undefined {
    const [first, second] = this.#templates;
    return second ? undefined : first?.fixed;
  }

  get usesRequest(): boolean {
    return this.#templates.some((template) => template.usesRequest);
  }

  get usesParameters(): boolean {
    return this.#function !== undefined || this.#templates.some((template) => template.usesParameters);
  }
}

/** A key's templates. Empty if JavaScript code or a cast passes something else. */
function templatesOf(key: unknown): readonly string[] {
  const sources: unknown = typeof key === 'string' ? [key] : key;
  return Array.isArray(sources) && sources.every((source) => typeof source === 'string') ? sources : [];
}
