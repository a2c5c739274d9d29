import 'reflect-metadata';
import { types } from 'node:util';
import type { LockedMethod } from './locked-method.js';

const LOCKS_OF_METHOD = Symbol('LockedMethods behind a method');
const LOCKED_METHODS = Symbol('LockedMethods of a class');
const CALLED_OF_SUPER = /\bsuper\s*\.\s*([\p{ID_Continue}$]+)/gu;

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

/** A method that overrides a decorated one and lacks the decorator. */
export interface BareOverride {
  readonly name: string;
  readonly overridden: string;
}

/** The unlocked overrides in a class and those that it inherits. */
export function unlockedOverridesOf(prototype: object): BareOverride[] {
  return bareOverridesOf(prototype, lockedMethodsOf(prototype), isLocked);
}

/**
 * The overrides of these methods that are not decorated. What calls `super` is guarded there: the class shows it in its source, also behind
 * wrappers of other decorators.
 */
export function bareOverridesOf(
  prototype: object,
  methods: readonly { readonly name: string; readonly methodName: string | symbol }[],
  isDecorated: (level: object, methodName: string | symbol) => boolean,
): BareOverride[] {
  return methods.flatMap(({ name: overridden, methodName }) => {
    const level = declaring(prototype, methodName);
    if (!level || isDecorated(level, methodName)) return [];
    const { constructor } = level as { constructor: unknown };
    if (typeof constructor !== 'function') return [];
    const source = Function.prototype.toString.call(constructor);
    if (Array.from(source.matchAll(CALLED_OF_SUPER), ([, called]) => called).includes(String(methodName))) return [];
    return [{ name: `${constructor.name}.${String(methodName)}`, overridden }];
  });
}

/** The prototype whose method of that name is in effect. */
function declaring(prototype: object, name: string | symbol): object | undefined {
  for (let level: object | null = prototype; level; level = Object.getPrototypeOf(level) as object | null) {
    if (Object.hasOwn(level, name)) return level;
  }
  return undefined;
}

// A wrapper above the lock may have copied no metadata, and a mixin has copied the locked method.
function isLocked(prototype: object, name: string | symbol): boolean {
  const own = (Reflect.getOwnMetadata(LOCKED_METHODS, prototype) ?? []) as LockedMethod[];
  if (own.some(({ methodName }) => methodName === name)) return true;
  const value: unknown = Reflect.getOwnPropertyDescriptor(prototype, name)?.value;
  return typeof value === 'function' && lockedMethodsBehind(value).length > 0;
}
