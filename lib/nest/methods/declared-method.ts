import 'reflect-metadata';
import { LockConfigError } from '../../api/errors.js';
import {
  assertOptions,
  assertParentheses,
  copyMethodMetadata,
  type DecoratedMethod,
  decoratedMethod,
  type Method,
  type ResultKind,
} from '../../decoration/decorated-method.js';
import type { LockService } from '../service/lock.service.js';
import { reserveServiceSlot } from '../service/service-slot.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';
import type { MethodOptions } from './distributed-lock-options.js';
import { type KeySource, MethodKey } from './method-key.js';
import { type MethodPlan, planMethod } from './method-plan.js';

const LOCKS_BEHIND = Symbol('locked methods behind a function');
const DECLARED = Symbol('decorated methods of a class');

/**
 * The decorator that declares a method: `@DistributedLock` and `@RunOnce` for a lock per call, the other two for an
 * election.
 */
export type MethodDecoratorName = '@DistributedLock' | '@RunOnce' | '@RunAsLeader' | '@OnlyLeader';

/** A decorated method as declared: its key and its options. Each application derives a plan from it. */
export class DeclaredMethod {
  /** Shown in messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly kind: ResultKind;
  readonly key: MethodKey;
  /** The locks of decorators below this one. */
  readonly locksBelow: readonly DeclaredMethod[];
  readonly #plans = new WeakMap<LockService, MethodPlan>();

  constructor(
    readonly decorator: MethodDecoratorName,
    /** The prototype of the class that declares it. */
    readonly target: object,
    readonly methodName: string | symbol,
    { name, original, kind }: DecoratedMethod,
    source: KeySource,
    readonly options: DecoratorOptions<MethodOptions>,
  ) {
    this.name = name;
    this.kind = kind;
    this.key = new MethodKey(name, source, target, methodName, original);
    this.locksBelow = locksBehind(original);
  }

  /** Whether the method takes part in an election. Otherwise, each call has its own lock. */
  get isElected(): boolean {
    return this.decorator === '@RunAsLeader' || this.decorator === '@OnlyLeader';
  }

  /** Whether `LockRequestInterceptor` acquires the lock. */
  get isAroundRequest(): boolean {
    return this.options.fixed?.around === 'request';
  }

  /** The function that a call runs, wrapped by all decorators; its metadata contains their marks. */
  get inEffect(): object {
    return Object(Reflect.get(this.target, this.methodName)) as object;
  }

  /**
   * The method's plan in an application, created once: at boot or, in a unit test, on the first call.
   *
   * @throws LockConfigError for options that cannot work
   */
  planIn(service: LockService): MethodPlan {
    let plan = this.#plans.get(service);
    if (!plan) {
      plan = planMethod(this, service);
      this.#plans.set(service, plan);
    }
    return plan;
  }
}

/** How a decorator declares a method. */
interface Declaration<O extends object> {
  readonly decorator: MethodDecoratorName;
  /** The decorator as written, for messages. */
  readonly example: string;
  readonly key: KeySource;
  readonly options: Configurable<O>;
  /** Converts the given options to lock options. Default: no change. @throws LockConfigError */
  readonly toLock?: (options: O) => MethodOptions;
  /** Creates the function that replaces the method. If omitted, the method stays as it is. */
  readonly wrap?: (method: DeclaredMethod, original: Method) => Method;
}

/**
 * The decorator that wraps a method and registers it for startup.
 *
 * @throws LockConfigError when decorating a method that cannot be locked
 */
export function declaration<O extends object>({ decorator, example, key, ...rest }: Declaration<O>) {
  const { options, toLock = (given: O) => given, wrap } = rest;
  assertParentheses(decorator, key, options, example);
  return (target: object, methodName: string | symbol, descriptor: PropertyDescriptor): void => {
    const decorated = decoratedMethod(decorator, target, methodName, descriptor);
    const { name, original, kind } = decorated;
    assertOptions(decorator, name, options, example);
    if (typeof target === 'function') {
      throw new LockConfigError(
        `${name} is static, so Nest cannot inject its lock service: make it an instance method of a provider.`,
      );
    }
    const ofLock = new DecoratorOptions(decorator, name, options, toLock);
    const method = new DeclaredMethod(decorator, target, methodName, decorated, key, ofLock);
    if (method.isElected && (kind === 'iteration' || kind === 'observable')) {
      throw new LockConfigError(`${name} returns a stream, but ${decorator} needs a method that returns a promise.`);
    }
    Reflect.defineMetadata(DECLARED, [...declaredBy(target), method], target);
    // Without the module, startup must fail, because the method would never run.
    reserveServiceSlot(target);
    if (!wrap) return;
    const wrapper = wrap(method, original);
    copyMethodMetadata(wrapper, original);
    if (!method.isElected) Reflect.defineMetadata(LOCKS_BEHIND, [method, ...method.locksBelow], wrapper);
    descriptor.value = wrapper;
  };
}

/** A handler's locks, outermost first. Works through other decorators' wrappers, because they copy metadata. */
export function locksBehind(handler: object): readonly DeclaredMethod[] {
  return (Reflect.getMetadata(LOCKS_BEHIND, handler) ?? []) as readonly DeclaredMethod[];
}

/**
 * All decorated methods of a class, including inherited ones. An inherited election method is replaced if a subclass
 * decorates it again.
 */
export function declaredMethodsOf(prototype: object): DeclaredMethod[] {
  const methods = prototypesOf(prototype).flatMap(declaredBy);
  const elected = methods.filter(({ isElected }) => isElected);
  return methods.filter(
    ({ isElected, methodName, target }) =>
      !isElected || elected.find((each) => each.methodName === methodName)?.target === target,
  );
}

/** Whether two decorators are on one method. */
export function isSameMethod(one: DeclaredMethod, other: DeclaredMethod): boolean {
  return one.target === other.target && one.methodName === other.methodName;
}

/** The prototype chain, starting with `prototype`. */
export function prototypesOf(prototype: object | null): object[] {
  return prototype ? [prototype, ...prototypesOf(Object.getPrototypeOf(prototype) as object | null)] : [];
}

function declaredBy(level: object): readonly DeclaredMethod[] {
  return (Reflect.getOwnMetadata(DECLARED, level) ?? []) as readonly DeclaredMethod[];
}
