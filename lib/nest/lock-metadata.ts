import 'reflect-metadata';
import type { LockedMethod } from './locked-method.js';

const LOCKED_METHOD = Symbol('LockedMethod');
const LOCKED_METHODS = Symbol('LockedMethods of a class');

/** Marks `wrapper` as the locked form of a method, and the class as having it. */
export function recordLockedMethod(prototype: object, wrapper: object, method: LockedMethod): void {
  Reflect.defineMetadata(LOCKED_METHOD, method, wrapper);
  const own = (Reflect.getOwnMetadata(LOCKED_METHODS, prototype) as LockedMethod[] | undefined) ?? [];
  Reflect.defineMetadata(LOCKED_METHODS, [...own, method], prototype);
}

/** The locked method behind a handler: also through wrappers of other decorators, as they copy metadata. */
export function lockedMethodBehind(handler: object): LockedMethod | undefined {
  return Reflect.getMetadata(LOCKED_METHOD, handler) as LockedMethod | undefined;
}

/** All locked methods of a class, its own and the inherited ones. */
export function lockedMethodsOf(prototype: object): LockedMethod[] {
  const methods: LockedMethod[] = [];
  for (let level: object | null = prototype; level; level = Object.getPrototypeOf(level) as object | null) {
    methods.push(...((Reflect.getOwnMetadata(LOCKED_METHODS, level) as LockedMethod[] | undefined) ?? []));
  }
  return methods;
}

/**
 * Gives `wrapper` everything that other decorators may have attached to `original`, and its name and length.
 *
 * Routes, guards, interceptors, cron expressions and API documentation are metadata of the function. A wrapper without
 * them silently loses the route, or the guard (getsentry/sentry-javascript#15598).
 */
export function takeAfter(wrapper: object, original: (...args: never[]) => unknown): void {
  for (const key of Reflect.getOwnMetadataKeys(original) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, original), wrapper);
  }
  Object.defineProperty(wrapper, 'name', { value: original.name, configurable: true });
  Object.defineProperty(wrapper, 'length', { value: original.length, configurable: true });
}
