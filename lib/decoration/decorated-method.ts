import 'reflect-metadata';
import { LockConfigError } from '../api/errors.js';

export type Method = (...args: unknown[]) => unknown;

/**
 * How a method returns its result. `unknown`: a plain function, which may return a promise or an async generator.
 * Compilers that target ES2017 turn async generators into plain functions, and other decorators may do the same to any
 * method.
 */
export type ResultKind = 'promise' | 'observable' | 'iteration' | 'unknown';

/** A decorated method. */
export interface DecoratedMethod {
  /** The name in messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly original: Method;
  readonly kind: ResultKind;
}

/** @throws LockConfigError if `decorator` is not on an asynchronous method */
export function decoratedMethod(
  decorator: string,
  target: object,
  key: unknown,
  descriptor: PropertyDescriptor | undefined,
): DecoratedMethod {
  if (typeof key === 'object' && key !== null && 'kind' in key) {
    throw new LockConfigError(
      `${decorator} was called as a standard decorator, but Nest uses legacy decorators: set "experimentalDecorators": true in tsconfig.json.`,
    );
  }
  if (typeof key !== 'string' && typeof key !== 'symbol') {
    throw new LockConfigError(`${decorator} is on the class ${classOf(target)}: put it on a method.`);
  }
  const name = `${classOf(target)}.${String(key)}`;
  if (typeof descriptor?.value !== 'function') {
    throw new LockConfigError(`${name} is a property or an accessor, but ${decorator} needs a method.`);
  }
  const original = descriptor.value as Method;
  const returnType: unknown = Reflect.getMetadata('design:returntype', target, key);
  const kind = resultKind(original, returnType);
  if (!kind) throw new LockConfigError(`${name} is synchronous, but ${decorator} has to wait: make it async.`);
  return { name, original, kind };
}

function classOf(target: object): string {
  return typeof target === 'function' ? target.name : target.constructor.name;
}

/**
 * Rejects a decorator used without parentheses, which would mistake the class and method name for a key and options.
 *
 * @param example the correct form
 * @throws LockConfigError
 */
export function assertParentheses(decorator: string, target: unknown, name: unknown, example: string): void {
  if (typeof name !== 'string' && typeof name !== 'symbol') return;
  if ((typeof target !== 'object' && typeof target !== 'function') || target === null || Array.isArray(target)) return;
  throw new LockConfigError(
    `${classOf(target)}.${String(name)}: ${decorator} is missing its parentheses and key: write ${example}.`,
  );
}

/** @throws LockConfigError if the options of a decorator are neither an object nor a function that returns one */
export function assertOptions(decorator: string, place: string, options: unknown, example: string): void {
  if (options !== null && (typeof options === 'object' || typeof options === 'function')) return;
  throw new LockConfigError(`${place}: the options of ${decorator} must be an object: write ${example}.`);
}

/** A method's kind; `undefined` if it is synchronous. */
function resultKind(original: Method, returnType: unknown): ResultKind | undefined {
  switch ((Object.getPrototypeOf(original) as { constructor: { name: string } }).constructor.name) {
    case 'AsyncGeneratorFunction':
      return 'iteration';
    case 'AsyncFunction':
      return isObservableClass(returnType) ? 'observable' : 'promise';
    case 'GeneratorFunction':
      return undefined;
  }
  if (isObservableClass(returnType)) return 'observable';
  // A return type of Promise proves nothing: swc emits it for async generators, too.
  return isValueClass(returnType) ? undefined : 'unknown';
}

/**
 * Whether a type is the class of a synchronous result. Decorator metadata records `Object` for any type that isn't a
 * class.
 */
function isValueClass(type: unknown): boolean {
  if (typeof type !== 'function' || type === Object) return false;
  const prototype: unknown = type.prototype;
  return (
    typeof prototype === 'object' && prototype !== null && !('then' in prototype || Symbol.asyncIterator in prototype)
  );
}

/** Whether a type is an RxJS Observable. Checks its methods, because an application may have several copies of RxJS. */
function isObservableClass(type: unknown): boolean {
  return typeof type === 'function' && isObservablePrototype(type.prototype);
}

/** Checks a prototype rather than the object itself, which may be a Proxy that throws for unknown members. */
export function isObservablePrototype(prototype: unknown): boolean {
  return ['subscribe', 'pipe', 'lift'].every((name) => hasMethod(prototype, name));
}

/** Doesn't call accessors, which may fail on a prototype. */
function hasMethod(prototype: unknown, name: string): boolean {
  if (typeof prototype !== 'object' || prototype === null) return false;
  const own = Object.getOwnPropertyDescriptor(prototype, name);
  return own ? typeof own.value === 'function' : hasMethod(Object.getPrototypeOf(prototype), name);
}

/**
 * Gives `wrapper` the name and length of `original` and everything that other decorators may have attached to it.
 *
 * Routes, guards, interceptors, cron expressions, and API documentation are metadata on the function. Without that
 * metadata, a wrapper silently loses the route or the guard (getsentry/sentry-javascript#15598).
 */
export function copyMethodMetadata(wrapper: object, original: (...args: never[]) => unknown): void {
  for (const key of Reflect.getOwnMetadataKeys(original) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, original), wrapper);
  }
  Object.defineProperty(wrapper, 'name', { value: original.name, configurable: true });
  Object.defineProperty(wrapper, 'length', { value: original.length, configurable: true });
}
