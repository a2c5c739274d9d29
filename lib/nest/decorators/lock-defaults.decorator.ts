import 'reflect-metadata';
import type { LockOptions } from '../../api/lock-options.js';
import type { LockService } from '../service/lock.service.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';

const CLASS_DEFAULTS = Symbol('defaults of @LockDefaults');

/** What a class can set for its decorated methods. */
export type ClassLockDefaults = Pick<
  LockOptions,
  'wait' | 'lease' | 'maxHold' | 'reentrant' | 'onLost' | 'release' | 'provider'
>;

/**
 * Sets defaults for all `@DistributedLock` methods, and `provider` and `lease` for the `@RunAsLeader` and `@OnlyLeader` methods, that a class declares, or that classes declare which extend it. The method's own
 * options win. A function gets the module's `config`, once, at boot. What a class inherits keeps the defaults of the class that declares it.
 */
export function LockDefaults(defaults: Configurable<ClassLockDefaults>): ClassDecorator {
  return (target) => {
    Reflect.defineMetadata(CLASS_DEFAULTS, new DecoratorOptions(defaults, '@LockDefaults'), target);
  };
}

/** The defaults of the class that declares a method, in an application. @throws LockConfigError where its configuration does not give them */
export function defaultsOfClass(prototype: object, service: LockService): ClassLockDefaults | undefined {
  const defaults = Reflect.getMetadata(CLASS_DEFAULTS, prototype.constructor) as
    DecoratorOptions<ClassLockDefaults> | undefined;
  return defaults?.in(service);
}
