import 'reflect-metadata';
import type { LockDefaults, LockOptions } from '../../api/lock-options.js';
import { DEFAULTS, OF_LOCK } from '../../core/plan/lock-settings.js';
import { type OptionTable, read, type Settings } from '../../core/toolkit/options.js';
import type { LockService } from '../service/lock.service.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';

const CLASS_DEFAULTS = Symbol('defaults of @LockDefaults');

/** The options that a class can set for its decorated methods. */
export type ClassLockDefaults = Pick<LockOptions, 'wait' | 'lease' | 'maxHold' | 'onLost' | 'release' | 'provider'> &
  Pick<LockDefaults, 'reentrant'>;

const OPTIONS = { ...DEFAULTS, provider: OF_LOCK.provider } satisfies OptionTable<ClassLockDefaults>;

/** Records the defaults that `@LockDefaults` gives to a class. */
export function recordClassDefaults(target: object, defaults: Configurable<ClassLockDefaults>): void {
  Reflect.defineMetadata(CLASS_DEFAULTS, new DecoratorOptions(defaults, '@LockDefaults'), target);
}

/**
 * The defaults of the class that declares a method, in an application.
 *
 * @throws LockConfigError where its configuration does not give them, and for what is no default
 */
export function defaultsOfClass(prototype: object, service: LockService): Settings<typeof OPTIONS> | undefined {
  const defaults = Reflect.getMetadata(CLASS_DEFAULTS, prototype.constructor) as
    DecoratorOptions<ClassLockDefaults> | undefined;
  return defaults && read({ name: `@LockDefaults of ${prototype.constructor.name}` }, defaults.in(service), OPTIONS);
}
