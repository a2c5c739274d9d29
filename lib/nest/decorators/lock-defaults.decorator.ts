import 'reflect-metadata';
import type { LockOptions } from '../../api/lock-options.js';

const CLASS_DEFAULTS = Symbol('defaults of @LockDefaults');

/** What a class can set for its decorated methods. */
export type ClassLockDefaults = Pick<
  LockOptions,
  'wait' | 'lease' | 'maxHold' | 'reentrant' | 'onLost' | 'release' | 'provider'
>;

/**
 * Sets defaults for all `@DistributedLock` methods, and `provider` and `lease` for the `@RunAsLeader` and `@OnlyLeader` methods, that a class declares, or that classes declare which extend it. The method's own
 * options win. What a class inherits keeps the defaults of the class that declares it.
 */
export function LockDefaults(defaults: ClassLockDefaults): ClassDecorator {
  return (target) => {
    Reflect.defineMetadata(CLASS_DEFAULTS, defaults, target);
  };
}

/** The defaults of the class that declares a method. */
export function defaultsOfClass(prototype: object): ClassLockDefaults | undefined {
  return Reflect.getMetadata(CLASS_DEFAULTS, prototype.constructor) as ClassLockDefaults | undefined;
}
