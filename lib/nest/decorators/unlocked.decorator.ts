import 'reflect-metadata';
import type { LockDecorator } from './decorator-types.js';

const UNLOCKED = Symbol('overrides that are meant to run without the inherited lock');

/**
 * Declares that an override runs without the lock of the method that it overrides, because it doesn't need a lock or
 * acquires one itself. Without it, an override that has no `@DistributedLock` and doesn't call `super` causes a warning
 * at startup. The decorator does not change the method.
 *
 * @example
 * ```ts
 * class DryRun extends Orders {
 *   @Unlocked()
 *   override async pay(order: Order) {}
 * }
 * ```
 */
export function Unlocked(): (target: LockDecorator.Prototype, name: string | symbol, descriptor?: unknown) => void {
  return (target, name) => {
    Reflect.defineMetadata(UNLOCKED, true, target, name);
  };
}

/** Whether the class with this prototype declares `@Unlocked` for the method. */
export function isUnlocked(prototype: object, name: string | symbol): boolean {
  return Reflect.hasOwnMetadata(UNLOCKED, prototype, name);
}
