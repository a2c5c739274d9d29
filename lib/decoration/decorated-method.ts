import 'reflect-metadata';
import { LockConfigError } from '../api/errors.js';

/** A method as its wrapper calls it. */
export type Method = (...args: unknown[]) => unknown;

/**
 * How a method gives its result. `unknown` is a plain function, which may return a promise or an async generator: compilers make one of an
 * async generator for ES2017, and other decorators of any method.
 */
export type ResultKind = 'promise' | 'observable' | 'iteration' | 'unknown';

/** The method that a decorator was put on. */
export interface DecoratedMethod {
  /** For messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly original: Method;
  readonly kind: ResultKind;
}

// The types that decorators see of a method which has its result at once.
const SYNCHRONOUS: readonly unknown[] = [String, Number, Boolean, BigInt, Symbol, Array, Date, Map, Set];

/** @throws LockConfigError where `decorator` is not on an asynchronous method. */
export function decoratedMethod(
  decorator: string,
  target: object,
  key: unknown,
  descriptor: PropertyDescriptor | undefined,
): DecoratedMethod {
  if (typeof key === 'object' && key !== null && 'kind' in key) {
    throw new LockConfigError(
      `${decorator} was called as a standard decorator, but Nest uses the legacy ones: set "experimentalDecorators": true in tsconfig.json.`,
    );
  }
  if (typeof key !== 'string' && typeof key !== 'symbol') {
    throw new LockConfigError(`${decorator} is on the class ${classOf(target)}: put it on a method.`);
  }
  const name = `${classOf(target)}.${String(key)}`;
  if (typeof descriptor?.value !== 'function') {
    throw new LockConfigError(`${name} is a property or an accessor: ${decorator} needs a method.`);
  }
  const original = descriptor.value as Method;
  const returnType: unknown = Reflect.getMetadata('design:returntype', target, key);
  const kind = resultKind(original, returnType);
  if (!kind) throw new LockConfigError(`${name} is synchronous and cannot wait, as ${decorator} does: make it async.`);
  return { name, original, kind };
}

function classOf(target: object): string {
  return typeof target === 'function' ? target.name : target.constructor.name;
}

/**
 * Refuses a decorator that is written without parentheses: it gets the class and the name of the method, which it would take for a key and options.
 *
 * @param example how it is written
 * @throws LockConfigError
 */
export function assertParentheses(decorator: string, target: unknown, name: unknown, example: string): void {
  if (typeof name !== 'string' && typeof name !== 'symbol') return;
  if ((typeof target !== 'object' && typeof target !== 'function') || target === null || Array.isArray(target)) return;
  throw new LockConfigError(
    `${classOf(target)}.${String(name)}: ${decorator} has no parentheses, and so no key: write ${example}.`,
  );
}

/** @throws LockConfigError for options of a decorator that are neither an object nor a function of the configuration */
export function assertOptions(decorator: string, place: string, options: unknown, example: string): void {
  if (options !== null && (typeof options === 'object' || typeof options === 'function')) return;
  throw new LockConfigError(`${place}: the options of ${decorator} must be an object: write ${example}.`);
}

/** Undefined for a synchronous method. */
function resultKind(original: Method, returnType: unknown): ResultKind | undefined {
  switch ((Object.getPrototypeOf(original) as { constructor: { name: string } }).constructor.name) {
    case 'AsyncGeneratorFunction':
      return 'iteration';
    case 'AsyncFunction':
      return isObservableClass(returnType) ? 'observable' : 'promise';
    case 'GeneratorFunction':
      return undefined;
  }
  if (SYNCHRONOUS.includes(returnType)) return undefined;
  // A return type of Promise proves nothing: swc emits it for async generators as well.
  return isObservableClass(returnType) ? 'observable' : 'unknown';
}

/** Whether a type is the Observable of RxJS, of any copy of it: an application may have several. */
function isObservableClass(type: unknown): boolean {
  return typeof type === 'function' && isObservablePrototype(type.prototype);
}

/** Asked of a prototype, since an object may be a Proxy that throws for a member that it does not have. */
export function isObservablePrototype(prototype: unknown): boolean {
  if (typeof prototype !== 'object' || prototype === null) return false;
  const { subscribe, pipe, lift } = prototype as Record<string, unknown>;
  return typeof subscribe === 'function' && typeof pipe === 'function' && typeof lift === 'function';
}

/**
 * Gives `wrapper` everything that other decorators may have attached to `original`, and its name and length.
 *
 * Routes, guards, interceptors, cron expressions and API documentation are metadata of the function. A wrapper without
 * them silently loses the route, or the guard (getsentry/sentry-javascript#15598).
 */
export function copyMethodMetadata(wrapper: object, original: (...args: never[]) => unknown): void {
  for (const key of Reflect.getOwnMetadataKeys(original) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, original), wrapper);
  }
  Object.defineProperty(wrapper, 'name', { value: original.name, configurable: true });
  Object.defineProperty(wrapper, 'length', { value: original.length, configurable: true });
}
