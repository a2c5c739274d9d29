import 'reflect-metadata';
import type { LockDefaults, LockOptions } from '../../api/lock-options.js';
import { type OptionNames, refuseUnknown } from '../../core/toolkit/given-options.js';
import type { LockService } from '../service/lock.service.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';

const CLASS_DEFAULTS = Symbol('defaults of @LockDefaults');

/** The options that a class can set for its decorated methods. */
export type ClassLockDefaults = Pick<LockOptions, 'wait' | 'lease' | 'maxHold' | 'onLost' | 'release' | 'provider'> &
  Pick<LockDefaults, 'reentrant'>;

/** The names of the defaults that a module gives. */
export const DEFAULTS: OptionNames<LockDefaults> = {
  wait: true,
  lease: true,
  maxHold: true,
  reentrant: true,
  onLost: true,
  release: true,
};
const CLASS_DEFAULT_NAMES: OptionNames<ClassLockDefaults> = { ...DEFAULTS, provider: true };

/** Records the defaults that `@LockDefaults` gives to a class. */
export function recordClassDefaults(target: object, defaults: Configurable<ClassLockDefaults>): void {
  Reflect.defineMetadata(CLASS_DEFAULTS, new DecoratorOptions(defaults, '@LockDefaults'), target);
}

/**
 * The defaults of the class that declares a method, in an application.
 *
 * @throws LockConfigError where its configuration does not give them, and for what is no default
 */
export function defaultsOfClass(prototype: object, service: LockService): ClassLockDefaults | undefined {
  const defaults = Reflect.getMetadata(CLASS_DEFAULTS, prototype.constructor) as
    DecoratorOptions<ClassLockDefaults> | undefined;
  const options = defaults?.in(service);
  if (options) refuseUnknown(`@LockDefaults of ${prototype.constructor.name}`, options, CLASS_DEFAULT_NAMES);
  return options;
}
