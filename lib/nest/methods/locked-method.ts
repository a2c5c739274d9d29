import type { ResultKind } from '../../decoration/decorated-method.js';
import type { LockService } from '../service/lock.service.js';
import { defaultsOfClass } from './class-defaults.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';
import type { MethodOptions } from './distributed-lock-options.js';
import { type KeySource, MethodKey } from './method-key.js';
import { MethodPlan } from './method-plan.js';
import { isScheduled, type MethodDeclaration } from './method-ticks.js';

/** A `@DistributedLock` as it is declared: one method, its key and its options. An application makes a plan of it. */
export class LockedMethod implements MethodDeclaration {
  /** For messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly key: MethodKey;
  readonly options: DecoratorOptions<MethodOptions>;
  readonly #plans = new WeakMap<LockService, MethodPlan>();

  constructor(
    /** The prototype of the class that declares it. */
    readonly target: object,
    readonly methodName: string | symbol,
    original: (...args: never[]) => unknown,
    key: KeySource,
    readonly kind: ResultKind,
    options: Configurable<MethodOptions>,
    /** Those of decorators below this one. */
    readonly locksBelow: readonly LockedMethod[],
  ) {
    this.name = `${target.constructor.name}.${String(methodName)}`;
    this.key = new MethodKey(this.name, key, target, methodName, original);
    this.options = new DecoratorOptions(options, '@DistributedLock');
  }

  /** Whether `LockInterceptor` takes the lock. */
  get isAroundRequest(): boolean {
    return this.options.fixed?.around === 'request';
  }

  /** Whether `@nestjs/schedule` calls it. */
  get isScheduled(): boolean {
    return isScheduled(this.inEffect);
  }

  /** The function that a call runs, with all decorators on it: their marks are its metadata. */
  get inEffect(): object {
    return Object(Reflect.get(this.target, this.methodName)) as object;
  }

  /** The plan in an application, made once: at boot, or at the first call in a unit test. @throws LockConfigError for options that cannot work */
  planIn(service: LockService): MethodPlan {
    let plan = this.#plans.get(service);
    if (!plan) {
      const options = this.options.in(service);
      plan = new MethodPlan(this, options, defaultsOfClass(this.target, service), service);
      this.#plans.set(service, plan);
    }
    return plan;
  }
}
