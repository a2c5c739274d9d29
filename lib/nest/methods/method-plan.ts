import 'reflect-metadata';
import { LockConfigError } from '../../api/errors.js';
import type { LockDefaults, LockOptions, LossPolicy } from '../../api/lock-options.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import { DEFAULTS, OF_LOCK } from '../../core/plan/lock-settings.js';
import { oneOf, option, type OptionTable, read, readGiven, type Settings } from '../../core/toolkit/options.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import { planCampaign } from '../../recipes/leadership.js';
import type { LockService } from '../service/lock.service.js';
import { jobOf } from './schedule-metadata.js';
import type { DeclaredMethod } from './declared-method.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';
import {
  type BusyHandler,
  type DistributedLockOptions,
  type LossHandler,
  type MethodOptions,
  TICKS,
} from './distributed-lock-options.js';

/**
 * A decorated method in one application: what its calls need, from the checked options of the method, its class, and
 * the module.
 */
export interface MethodPlan {
  readonly service: LockService;
  readonly lock: LockPlan;
  readonly onBusy: 'throw' | 'skip' | BusyHandler;
  readonly onLost: LossPolicy | LossHandler;
  readonly signal: MethodOptions['signal'];
  /** Set for a method that runs once per tick. */
  readonly job: ScheduledJob | undefined;
  /** The values for `#{ctx.name}`. */
  readonly context: (name: string) => unknown;
}

/** @throws LockConfigError for options that cannot work in this application */
export function planMethod(method: DeclaredMethod, service: LockService): MethodPlan {
  const options = method.options.in(service);
  const defaults = defaultsOfClass(method.target, service);
  const lock = (method.isElected ? electionLock : callLock)(method, options, defaults, service);
  const { [TICKS]: missingRuns, onBusy = 'throw', onLost = lock.settings.onLost, signal } = options;
  const job = missingRuns && jobOf(method, missingRuns, lock, service);
  return { service, lock, onBusy, onLost, signal, job, context: (name) => service.context[name]?.() };
}

/** The options of a call that its lock does not have. */
const OF_CALL = {
  signal: option("a function that returns the AbortSignal from the method's arguments", (given) =>
    typeof given === 'function' ? given : undefined,
  ),
  onBusy: option("'throw', 'skip' or a function", (given) =>
    typeof given === 'function' || given === 'throw' || given === 'skip' ? given : undefined,
  ),
  around: oneOf('method', 'request'),
} satisfies OptionTable<Pick<DistributedLockOptions, 'signal' | 'onBusy' | 'around'>>;

/** The lock for each call to a method. */
function callLock(
  method: DeclaredMethod,
  options: MethodOptions,
  classDefaults: ClassLockDefaults | undefined,
  { manager }: LockService,
): LockPlan {
  const { signal, onBusy, around, ...own } = withoutUndefined(options);
  readGiven({}, { signal, onBusy, around }, OF_CALL);
  const { name, key } = method;
  const misuse = misuseOf(method, options);
  if (misuse !== undefined) throw new LockConfigError(misuse);
  // As with tryAcquire(), only an explicit `wait` causes a wait: skipping after waiting is rarely intended.
  if (onBusy === 'skip') own.wait ??= 0;
  // The handler gets the error that would otherwise be thrown.
  if (typeof own.onLost === 'function') own.onLost = 'throw';
  const { reentrant, ...lockOptions } = { ...classDefaults, ...(own as LockOptions) };
  return manager.plan(lockOptions, { method: name, template: key.template }, reentrant);
}

/** Why options that are valid by themselves cannot work together, or on this method. */
function misuseOf({ options: { fixed }, key }: DeclaredMethod, options: MethodOptions): string | undefined {
  const { around, signal } = options;
  if (Reflect.get(options, 'within') !== undefined) {
    return `option "within" applies to one call: call the method under lock.run(), or set reentrant: true`;
  }
  if (around !== undefined && !fixed) {
    return `option "around" cannot come from the configuration, since it decides how the method is wrapped`;
  }
  if (around !== 'request' || (!key.usesParameters && !signal)) return undefined;
  const [what, remedy] = signal ? ['"signal"', 'remove one'] : ['its key', 'use #{request…} or #{ctx…}'];
  return `around: 'request' takes the lock before the method has arguments, so ${what} cannot come from them: ${remedy}`;
}

/** The lock that decides an election, with the class's `provider` and `lease`. */
function electionLock(
  { decorator, name, key }: DeclaredMethod,
  own: MethodOptions,
  { provider, lease }: ClassLockDefaults = {},
  { manager }: LockService,
): LockPlan {
  const isCampaign = decorator === '@RunAsLeader';
  const options = { ...(isCampaign && { lease }), provider, ...withoutUndefined(own) };
  return planCampaign(manager, options, isCampaign ? decorator : '@OnlyLeader', {
    method: name,
    template: key.template,
  });
}

// An option set to undefined counts as unset, but spreading it would overwrite the default.
function withoutUndefined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}

/** The options that a class can set for its decorated methods. */
export type ClassLockDefaults = Pick<LockOptions, 'wait' | 'lease' | 'maxHold' | 'onLost' | 'release' | 'provider'> &
  Pick<LockDefaults, 'reentrant'>;

const CLASS_DEFAULTS = Symbol('defaults of @LockDefaults');
const OPTIONS = { ...DEFAULTS, provider: OF_LOCK.provider } satisfies OptionTable<ClassLockDefaults>;

/** Records the defaults of a `@LockDefaults` class. */
export function recordClassDefaults(target: object, defaults: Configurable<ClassLockDefaults>): void {
  const options = new DecoratorOptions('@LockDefaults', '', defaults, (given: ClassLockDefaults) => given);
  Reflect.defineMetadata(CLASS_DEFAULTS, options, target);
}

/**
 * An application's defaults for the class that declares a method.
 *
 * @throws LockConfigError if the configuration lacks them or contains other options
 */
function defaultsOfClass({ constructor }: object, service: LockService): Settings<typeof OPTIONS> | undefined {
  const defaults = Reflect.getMetadata(CLASS_DEFAULTS, constructor) as DecoratorOptions<ClassLockDefaults> | undefined;
  return defaults && read({ name: `@LockDefaults of ${constructor.name}` }, defaults.in(service), OPTIONS);
}
