import { LockError, LockKeyError } from '../../api/errors.js';
import type { KeyFunction } from '../../key/key-function.js';
import { KeyTemplate } from '../../key/key-template.js';
import type { KeyScope } from '../../key/scope.js';
import { normalizeKeys, type LockKey } from '../../key/lock-key.js';
import { parameterNamesOf } from '../../key/parameter-names.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { LockPlan } from '../../core/acquire/lock-plan.js';
import type { DistributedLockOptions } from './distributed-lock-options.js';
import { defaultsOfClass } from './lock-defaults.decorator.js';
import type { LockService } from '../service/lock.service.js';

/** What a decorator may be given as a key: a template, several, or a function of the method's arguments. */
export type KeySource = string | readonly string[] | KeyFunction<never[]>;

/** What a decorator describes: one method, its key and its options. Its calls are the business of `method-call.ts`. */
export class LockedMethod {
  /** For messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly #templates: KeyTemplate[] = [];
  // Kept for the list of problems at boot: thrown at decoration, the first one would hide the others.
  readonly #templateErrors: LockKeyError[] = [];
  readonly #keyFunction: ((...args: never[]) => LockKey) | undefined;
  readonly #source: string | null;
  readonly #plans = new WeakMap<LockManager, LockPlan>();

  constructor(
    private readonly target: object,
    readonly methodName: string | symbol,
    original: (...args: never[]) => unknown,
    key: KeySource,
    readonly options: DistributedLockOptions,
    /** Those of decorators below this one. */
    private readonly locksBelow: readonly LockedMethod[],
  ) {
    const owner = target.constructor;
    this.name = `${owner.name}.${String(methodName)}`;
    if (typeof key === 'function') {
      this.#keyFunction = key;
      this.#source = null;
      return;
    }
    const site = {
      method: this.name,
      className: owner.name,
      methodName: String(methodName),
      parameters: parameterNamesOf(original, owner, methodName),
    };
    const sources = typeof key === 'string' ? [key] : key;
    for (const source of sources) this.#collect(() => this.#templates.push(KeyTemplate.parse(source, site)));
    if (sources.length === 0) this.#collect(() => normalizeKeys(sources));
    this.#source = sources.join(', ');
  }

  /** Whether `@nestjs/schedule` calls it: known by the mark that `@Cron`, `@Interval` and `@Timeout` leave, without that package. */
  get isScheduled(): boolean {
    const method = (this.target as Record<string | symbol, unknown>)[this.methodName];
    return typeof method === 'function' && Reflect.hasMetadata('SCHEDULER_TYPE', method);
  }

  /** Everything that is wrong with this method in an application, found without calling it. */
  problems({ manager, context }: LockService): string[] {
    const problems: string[] = [];
    try {
      this.planFor(manager);
    } catch (error) {
      if (!LockError.is(error)) throw error;
      problems.push(error.message);
    }
    for (const name of this.#templates.flatMap((template) => template.contextNames)) {
      if (!Object.hasOwn(context, name)) {
        problems.push(`its key reads #{ctx.${name}}, but the module's "context" has no "${name}"`);
      }
    }
    if (this.options.around === 'request' && this.#needsArguments()) {
      problems.push(
        `around: 'request' takes the lock before the method has arguments, so its key cannot come from them: use #{request…} or #{ctx…}`,
      );
    }
    if (this.locksBelow.some(({ options }) => options.around === 'request')) {
      problems.push(
        `a @DistributedLock is above one with around: 'request', which has to be the outermost: put that one above, or give one decorator both keys as an array`,
      );
    }
    // The errors of templates name the method themselves.
    return [
      ...this.#templateErrors.map((error) => error.message),
      ...problems.map((problem) => `${this.name}: ${problem}`),
    ];
  }

  /** The options of this method, checked against the providers of an application. @throws LockConfigError */
  planFor(manager: LockManager): LockPlan {
    let plan = this.#plans.get(manager);
    if (!plan) {
      const own = withoutUndefined(this.options);
      // As with tryAcquire(), only the call itself can override it: skipping after a wait is rarely what is meant.
      if (own.onBusy === 'skip') own.wait ??= 0;
      const options = { ...defaultsOfClass(this.target), ...own };
      plan = manager.plan(options, { method: this.name, template: this.#source });
      this.#plans.set(manager, plan);
    }
    return plan;
  }

  /** The key or keys of one call. @throws LockKeyError */
  keysOf(scope: KeyScope): LockKey {
    if (this.#keyFunction) return this.#keyFunction.apply(scope.self, Array.from(scope.args) as never[]);
    const [error] = this.#templateErrors;
    if (error) throw error;
    const [first, second] = this.#templates;
    if (first && !second) return first.evaluate(scope);
    return this.#templates.flatMap((template) => template.evaluate(scope));
  }

  #needsArguments(): boolean {
    return this.#keyFunction !== undefined || this.#templates.some((template) => template.usesParameters);
  }

  #collect(parse: () => unknown): void {
    try {
      parse();
    } catch (error) {
      if (!(error instanceof LockKeyError)) throw error;
      this.#templateErrors.push(error);
    }
  }
}

// An option that is set to undefined is left open: spread as it is, it would hide the default.
function withoutUndefined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}
