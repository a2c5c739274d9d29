import { LockConfigError, LockError, LockKeyError } from '../../api/errors.js';
import type { KeyFunction } from '../../key/key-function.js';
import { KeyTemplate } from '../../key/key-template.js';
import type { KeyScope } from '../../key/scope.js';
import type { LockKey } from '../../key/lock-key.js';
import { parameterNamesOf } from '../../key/parameter-names.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { LockOptions, LossPolicy } from '../../api/lock-options.js';
import type { LockPlan } from '../../core/acquire/lock-plan.js';
import type { BusyContext, DistributedLockOptions, LossContext } from './distributed-lock-options.js';
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
    const sources = sourcesOf(key);
    if (sources.length === 0) {
      this.#templateErrors.push(
        new LockKeyError(
          `${this.name} has no lock key: give @DistributedLock a template such as 'order:#{order.id}', several of them, or a function of the arguments.`,
        ),
      );
    }
    for (const source of sources) this.#collect(() => this.#templates.push(KeyTemplate.parse(source, site)));
    this.#source = sources.join(', ');
  }

  /** Whether `@nestjs/schedule` calls it: known by the mark that `@Cron`, `@Interval` and `@Timeout` leave, without that package. */
  get isScheduled(): boolean {
    const method = (this.target as Record<string | symbol, unknown>)[this.methodName];
    return typeof method === 'function' && Reflect.hasMetadata('SCHEDULER_TYPE', method);
  }

  /**
   * Everything that is wrong with this method in an application, found without calling it.
   *
   * @param prototype that of the class which has or inherits it
   */
  problems({ manager, context }: LockService, prototype: object): string[] {
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
    problems.push(...mistypedOptions(this.options), ...this.#handlerProblems(prototype));
    const { around, signal } = this.options;
    if (around === 'request' && this.#needsArguments()) {
      problems.push(
        `around: 'request' takes the lock before the method has arguments, so its key cannot come from them: use #{request…} or #{ctx…}`,
      );
    }
    if (around === 'request' && signal) {
      problems.push(
        `around: 'request' takes the lock before the method has arguments, so "signal" cannot come from them: remove one of the two`,
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

  /** What is probably not meant, although it can work. */
  get warnings(): readonly string[] {
    return this.#templates.flatMap((template) => template.warnings);
  }

  /** The options of this method, checked against the providers of an application. @throws LockConfigError */
  planFor(manager: LockManager): LockPlan {
    let plan = this.#plans.get(manager);
    if (!plan) {
      // The signal is one of each call.
      const own = { ...withoutUndefined(this.options), signal: undefined };
      // As with tryAcquire(), only the call itself can override it: skipping after a wait is rarely what is meant.
      if (own.onBusy === 'skip') own.wait ??= 0;
      // A handler gets the error that would be thrown.
      if (isHandler(own.onLost, LOSS_POLICIES)) own.onLost = 'throw';
      const options = { ...defaultsOfClass(this.target), ...(own as LockOptions) };
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

  /** The signal that ends the wait of one call, if it has one. @throws LockConfigError for what is no `AbortSignal` */
  signalOf(self: unknown, args: readonly unknown[]): AbortSignal | undefined {
    const signal: unknown = this.options.signal?.apply(self, args as never[]);
    if (signal === undefined || signal instanceof AbortSignal) return signal;
    throw new LockConfigError(
      `Option "signal" of ${this.name} gave ${signal === null ? 'null' : `a ${typeof signal}`}, but must give an AbortSignal, or undefined where a call has none.`,
    );
  }

  /** The handler of `onBusy` or `onLost`, with the instance as its `this`; undefined for one of the words. @throws LockConfigError for an instance without such a method */
  handlerOf(option: 'onBusy' | 'onLost', self: unknown): ((context: BusyContext | LossContext) => unknown) | undefined {
    const given: unknown = this.options[option];
    if (!isHandler(given, WORDS[option])) return undefined;
    const handler: unknown = typeof given === 'string' ? (self as Record<string, unknown> | undefined)?.[given] : given;
    if (typeof handler !== 'function') throw new LockConfigError(`${this.name}: ${noHandler(option, given)}`);
    return (context) => handler.call(self, context) as unknown;
  }

  #handlerProblems(prototype: object): string[] {
    const problems: string[] = [];
    for (const option of ['onBusy', 'onLost'] as const) {
      const given: unknown = this.options[option];
      if (typeof given !== 'string' || !isHandler(given, WORDS[option])) continue;
      if (typeof Reflect.get(prototype, given) !== 'function') problems.push(noHandler(option, given));
      else if (given === this.methodName) problems.push(`option "${option}" names the method itself: name another one`);
      else if (this.options.around === 'request') {
        problems.push(
          `around: 'request' takes the lock before the handler of its instance runs, so option "${option}" cannot name a method: give a function`,
        );
      }
    }
    return problems;
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

const LOSS_POLICIES: readonly LossPolicy[] = ['throw', 'throw-early', 'ignore'];
const WORDS = { onBusy: ['throw', 'skip'], onLost: LOSS_POLICIES } as const;

/** Whether an option is a handler, or names one. */
function isHandler(given: unknown, words: readonly string[]): boolean {
  return typeof given === 'function' || (typeof given === 'string' && !words.includes(given));
}

function noHandler(option: 'onBusy' | 'onLost', given: unknown): string {
  return `option "${option}" is '${String(given)}', but the class has no method of that name: it must be ${inWords(option)}`;
}

function inWords(option: 'onBusy' | 'onLost'): string {
  return `${WORDS[option].map((word) => `'${word}'`).join(', ')}, a function, or the name of a method`;
}

/** The templates of a key; none where JavaScript or a cast gives something else. */
function sourcesOf(key: unknown): readonly string[] {
  const sources: unknown = typeof key === 'string' ? [key] : key;
  return Array.isArray(sources) && sources.every((source) => typeof source === 'string') ? sources : [];
}

/** What the types refuse, of the options that the core does not check. */
function mistypedOptions({ around, onBusy, signal }: DistributedLockOptions): string[] {
  const problems: string[] = [];
  if (signal !== undefined && typeof signal !== 'function') {
    problems.push(`option "signal" must be a function that takes the AbortSignal out of the method's arguments`);
  }
  if (!['undefined', 'string', 'function'].includes(typeof onBusy)) {
    problems.push(`option "onBusy" is ${String(onBusy)}, but must be ${inWords('onBusy')}`);
  }
  if (![undefined, 'method', 'request'].includes(around)) {
    problems.push(`option "around" is '${String(around)}', but must be 'method' or 'request'`);
  }
  return problems;
}

// An option that is set to undefined is left open: spread as it is, it would hide the default.
function withoutUndefined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}
