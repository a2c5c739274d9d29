import 'reflect-metadata';
import type { LockDefaults, LockOptions, LossPolicy } from '../../api/lock-options.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import { DEFAULTS, OF_LOCK } from '../../core/plan/lock-settings.js';
import { type OptionTable, read, type Settings } from '../../core/toolkit/options.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import { planCampaign } from '../../recipes/leadership.js';
import type { LockService } from '../service/lock.service.js';
import { jobOf } from './schedule-metadata.js';
import type { DeclaredMethod } from './declared-method.js';
import { type Configurable, DecoratorOptions } from './decorator-options.js';
import { type BusyHandler, type LossHandler, type MethodOptions, TICKS } from './distributed-lock-options.js';
import type { MethodKey } from './method-key.js';

/**
 * A decorated method in one application: everything that its calls need, from the checked options of the method, its class, and the module.
 */
export class MethodPlan {
  readonly lock: LockPlan;
  readonly onBusy: 'throw' | 'skip' | BusyHandler;
  readonly onLost: LossPolicy | LossHandler;
  /** Set for a method that runs once per tick. */
  readonly job: ScheduledJob | undefined;
  /** The values for `#{ctx.name}`. */
  readonly context: (name: string) => unknown;
  /** Shown in messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly key: MethodKey;
  readonly signal: MethodOptions['signal'];

  /** @throws LockConfigError for options that cannot work in this application */
  constructor(
    method: DeclaredMethod,
    readonly service: LockService,
  ) {
    const options = method.options.in(service);
    const defaults = defaultsOfClass(method.target, service);
    this.name = method.name;
    this.key = method.key;
    this.lock = method.isElected
      ? electionLock(method, options, defaults, service)
      : callLock(method, options, defaults, service);
    this.onBusy = options.onBusy ?? 'throw';
    this.onLost = typeof options.onLost === 'function' ? options.onLost : this.lock.settings.onLost;
    const { [TICKS]: missingRuns } = options;
    this.job = missingRuns && jobOf(method, missingRuns, this.lock, service);
    this.context = (name) => service.context[name]?.();
    this.signal = options.signal;
  }
}

/** The lock for each call to a method. */
function callLock(
  { name, key }: DeclaredMethod,
  options: MethodOptions,
  classDefaults: ClassLockDefaults | undefined,
  { manager }: LockService,
): LockPlan {
  // Each call has its own signal.
  const own = { ...withoutUndefined(options), signal: undefined };
  // As with tryAcquire(), only an explicit `wait` causes a wait: skipping after waiting is rarely intended.
  if (own.onBusy === 'skip') own.wait ??= 0;
  // The handler gets the error that would otherwise be thrown.
  if (typeof own.onLost === 'function') own.onLost = 'throw';
  // Some of the decorator's options aren't lock options.
  const ofLock = { ...(own as LockOptions), onBusy: undefined, around: undefined };
  const { reentrant, ...lockOptions } = { ...classDefaults, ...ofLock };
  return manager.plan(lockOptions, { method: name, template: key.template }, reentrant);
}

/** The lock that decides an election, with the class's `provider` and `lease`. */
function electionLock(
  { decorator, name, key }: DeclaredMethod,
  own: MethodOptions,
  { provider, lease }: ClassLockDefaults = {},
  { manager }: LockService,
): LockPlan {
  const isCampaign = decorator === '@RunAsLeader';
  const options = { ...(isCampaign && lease && { lease }), ...own, provider: own.provider ?? provider };
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
