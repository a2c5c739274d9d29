import { LockConfigError, LockError, LockKeyError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import type { KeyFunction } from '../../key/key-function.js';
import { KeyTemplate } from '../../key/key-template.js';
import type { KeyScope } from '../../key/scope.js';
import type { LockKey } from '../../key/lock-key.js';
import { parameterNamesOf } from '../../key/parameter-names.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { LockOptions, LossPolicy } from '../../api/lock-options.js';
import type { LockPlan } from '../../core/acquire/lock-plan.js';
import type { BusyContext, DistributedLockOptions, LossContext } from './distributed-lock-options.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';
import { defaultsOfClass } from './class-defaults.js';
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
  readonly #options: DecoratorOptions<DistributedLockOptions>;
  readonly #plans = new WeakMap<LockManager, LockPlan>();

  constructor(
    /** The prototype of the class that declares it. */
    readonly target: object,
    readonly methodName: string | symbol,
    original: (...args: never[]) => unknown,
    key: KeySource,
    options: Configurable<DistributedLockOptions>,
    /** Those of decorators below this one. */
    private readonly locksBelow: readonly LockedMethod[],
  ) {
    this.#options = new DecoratorOptions(options, '@DistributedLock');
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
    return Reflect.hasMetadata('SCHEDULER_TYPE', this.inEffect);
  }

  /** What a call runs, with all decorators on it: their marks are its metadata. */
  get inEffect(): object {
    return Object(Reflect.get(this.target, this.methodName)) as object;
  }

  /**
   * Everything that is wrong with this method in an application, found without calling it.
   *
   * @param prototype that of the class which has or inherits it
   */
  problems(service: LockService, prototype: object): string[] {
    const problems: string[] = [];
    try {
      this.planFor(service);
    } catch (error) {
      if (!LockError.is(error)) throw error;
      problems.push(error.message);
    }
    for (const name of this.#templates.flatMap((template) => template.contextNames)) {
      if (!Object.hasOwn(service.context, name)) {
        problems.push(`its key reads #{ctx.${name}}, but the module's "context" has no "${name}"`);
      }
    }
    problems.push(...this.#optionProblems(service, prototype));
    if (this.locksBelow.some((below) => below.isAroundRequest)) {
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

  #optionProblems(service: LockService, prototype: object): string[] {
    let options: DistributedLockOptions;
    try {
      options = this.optionsIn(service);
    } catch {
      // There is no plan without them either, which is a problem already.
      return [];
    }
    const problems = [...mistypedOptions(options), ...this.#handlerProblems(options, prototype)];
    const { around, signal } = options;
    if (around !== undefined && !this.#options.fixed) {
      problems.push(`option "around" cannot come from the configuration, since it decides how the method is wrapped`);
    }
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
    return problems;
  }

  /** What is probably not meant, although it can work. */
  get warnings(): readonly string[] {
    return this.#templates.flatMap((template) => template.warnings);
  }

  /** Whether `LockInterceptor` takes the lock. */
  get isAroundRequest(): boolean {
    return this.#options.fixed?.around === 'request';
  }

  /** The options of this method in an application. @throws LockConfigError where its configuration does not give them */
  optionsIn(service: LockService): DistributedLockOptions {
    return this.#options.in(service);
  }

  /** The same, with those of its class, checked against the providers of the application. @throws LockConfigError */
  planFor(service: LockService): LockPlan {
    const { manager } = service;
    let plan = this.#plans.get(manager);
    if (!plan) {
      // The signal is one of each call.
      const own = { ...withoutUndefined(this.optionsIn(service)), signal: undefined };
      // As with tryAcquire(), only the call itself can override it: skipping after a wait is rarely what is meant.
      if (own.onBusy === 'skip') own.wait ??= 0;
      // A handler gets the error that would be thrown.
      if (isHandler(own.onLost, LOSS_POLICIES)) own.onLost = 'throw';
      const options = { ...defaultsOfClass(this.target, service), ...(own as LockOptions) };
      plan = manager.plan(options, { method: this.name, template: this.#source });
      this.#plans.set(manager, plan);
    }
    return plan;
  }

  /** The key or keys of one call. @throws LockKeyError */
  keysOf(scope: KeyScope): LockKey {
    if (this.#keyFunction) {
      const key: unknown = this.#keyFunction.apply(scope.self, Array.from(scope.args) as never[]);
      if (typeof key === 'string' || Array.isArray(key)) return key as LockKey;
      throw new LockKeyError(
        `The key function of ${this.name} gave ${shown(key)}, but a lock key must be a string or a list of strings: make it with lockKey, such as (order) => lockKey\`order:\${order.id}\`.`,
      );
    }
    const [error] = this.#templateErrors;
    if (error) throw error;
    const [first, second] = this.#templates;
    if (first && !second) return first.evaluate(scope);
    return this.#templates.flatMap((template) => template.evaluate(scope));
  }

  /** The signal that ends the wait of one call, if it has one. @throws LockConfigError for what is no `AbortSignal` */
  signalOf(service: LockService, self: unknown, args: readonly unknown[]): AbortSignal | undefined {
    const signal: unknown = this.optionsIn(service).signal?.apply(self, args as never[]);
    if (signal === undefined || signal instanceof AbortSignal) return signal;
    throw new LockConfigError(
      `Option "signal" of ${this.name} gave ${signal === null ? 'null' : `a ${typeof signal}`}, but must give an AbortSignal, or undefined where a call has none.`,
    );
  }

  /** The handler of `onBusy` or `onLost`, with the instance as its `this`; undefined for one of the words. @throws LockConfigError for an instance without such a method */
  handlerOf(
    service: LockService,
    option: 'onBusy' | 'onLost',
    self: unknown,
  ): ((context: BusyContext | LossContext) => unknown) | undefined {
    const given: unknown = this.optionsIn(service)[option];
    if (!isHandler(given, WORDS[option])) return undefined;
    const handler: unknown = typeof given === 'string' ? (self as Record<string, unknown> | undefined)?.[given] : given;
    if (typeof handler !== 'function') throw new LockConfigError(`${this.name}: ${noHandler(option, given)}`);
    return (context) => handler.call(self, context) as unknown;
  }

  #handlerProblems(options: DistributedLockOptions, prototype: object): string[] {
    const problems: string[] = [];
    for (const option of ['onBusy', 'onLost'] as const) {
      const given: unknown = options[option];
      if (typeof given !== 'string' || !isHandler(given, WORDS[option])) continue;
      if (typeof Reflect.get(prototype, given) !== 'function') problems.push(noHandler(option, given));
      else if (given === this.methodName) problems.push(`option "${option}" names the method itself: name another one`);
      else if (options.around === 'request') {
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
function mistypedOptions(options: DistributedLockOptions): string[] {
  const { around, onBusy, signal } = options;
  const problems: string[] = [];
  if (Reflect.get(options, 'within') !== undefined) {
    problems.push(`option "within" belongs to one call: call the method under lock.run(), or set reentrant: true`);
  }
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
