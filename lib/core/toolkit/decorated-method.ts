import 'reflect-metadata';
import { LockConfigError } from '../../api/errors.js';

type Method = (...args: unknown[]) => unknown;

/** The method that a decorator was put on. */
export interface DecoratedMethod {
  /** For messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly original: Method;
  /** It is an async generator. */
  readonly isIteration: boolean;
  /** The type of its result as the compiler has emitted it, if it has. */
  readonly returnType: unknown;
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
  const place = typeof target === 'function' ? target.name : target.constructor.name;
  if (typeof key !== 'string' && typeof key !== 'symbol') {
    throw new LockConfigError(`${decorator} is on the class ${place}: put it on a method.`);
  }
  const name = `${place}.${String(key)}`;
  if (typeof descriptor?.value !== 'function') {
    throw new LockConfigError(`${name} is a property or an accessor: ${decorator} needs a method.`);
  }
  const original = descriptor.value as Method;
  // The function's own kind goes first: for an async generator tsc emits no return type and swc emits Promise.
  const kind = (Object.getPrototypeOf(original) as { constructor: { name: string } }).constructor.name;
  const returnType: unknown = Reflect.getMetadata('design:returntype', target, key);
  const isAsync = kind === 'AsyncFunction' || kind === 'AsyncGeneratorFunction';
  if (!isAsync && (kind === 'GeneratorFunction' || SYNCHRONOUS.includes(returnType))) {
    throw new LockConfigError(`${name} is synchronous and cannot wait, as ${decorator} does: make it async.`);
  }
  return { name, original, isIteration: kind === 'AsyncGeneratorFunction', returnType };
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
