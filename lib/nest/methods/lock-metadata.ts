import 'reflect-metadata';
import { types } from 'node:util';
import type { LockedMethod } from './locked-method.js';

const LOCKS_OF_METHOD = Symbol('LockedMethods behind a method');
const LOCKED_METHODS = Symbol('LockedMethods of a class');

/** Marks `wrapper` as the locked form of a method, and the class as having it. It has the marks of locks below it already. */
export function recordLockedMethod(prototype: object, wrapper: object, method: LockedMethod): void {
  Reflect.defineMetadata(LOCKS_OF_METHOD, [method, ...lockedMethodsBehind(wrapper)], wrapper);
  const own = (Reflect.getOwnMetadata(LOCKED_METHODS, prototype) as LockedMethod[] | undefined) ?? [];
  Reflect.defineMetadata(LOCKED_METHODS, [...own, method], prototype);
}

/** The locks of a handler, the outermost first: also through wrappers of other decorators, as they copy metadata. */
export function lockedMethodsBehind(handler: object): readonly LockedMethod[] {
  return (Reflect.getMetadata(LOCKS_OF_METHOD, handler) ?? []) as readonly LockedMethod[];
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
 * The locked methods of a class on which another decorator has put a Proxy, as `@Transactional` and `@UseCls` of
 * nestjs-cls do: what it does goes on after the lock is released.
 */
export function proxiedLocksOf(prototype: object): LockedMethod[] {
  const methods: LockedMethod[] = [];
  for (let level: object | null = prototype; level; level = Object.getPrototypeOf(level) as object | null) {
    for (const name of Reflect.ownKeys(level)) {
      const value: unknown = Reflect.getOwnPropertyDescriptor(level, name)?.value;
      const [method] = types.isProxy(value) ? lockedMethodsBehind(value as object) : [];
      if (method) methods.push(method);
    }
  }
  return methods;
}
