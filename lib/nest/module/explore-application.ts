import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import { LockConfigError } from '../../api/errors.js';
import { type DeclaredMethod, declaredMethodsOf } from '../methods/declared-method.js';
import type { MethodPlan } from '../methods/method-plan.js';
import { logger } from '../options/module-logger.js';
import type { LockService } from '../service/lock.service.js';
import { addService } from '../service/service-slot.js';
import { reportBoot } from './boot-report.js';
import { checkMethod } from './check-method.js';
import { findCampaigns, type ModuleCampaign } from './leader-campaigns.js';
import { findKeysHeldLonger } from './keys-held-longer.js';
import { findJobs } from './scheduled-jobs.js';
import { findUnlockedOverrides, findTransactionsAbove } from './unlocked-overrides.js';

/** A provider whose class has decorated methods. */
export interface DecoratedProvider {
  readonly methods: readonly DeclaredMethod[];
  readonly prototype: object;
  readonly instance: unknown;
  /** Whether the class has a single instance, which can be called without a request. */
  readonly isSingleton: boolean;
}

/** An application's decorated methods and what the exploration found. */
export interface Application {
  readonly service: LockService;
  readonly providers: readonly DecoratedProvider[];
  /** The methods whose options can work. */
  readonly plans: ReadonlyMap<DeclaredMethod, MethodPlan>;
  /** Mistakes, any of which makes startup fail. */
  readonly problems: Set<string>;
  readonly warnings: Set<string>;
}

/** An application with the campaigns and jobs that begin after startup. */
export interface ExploredApplication extends Application {
  readonly campaigns: readonly ModuleCampaign[];
  readonly jobs: ReturnType<typeof findJobs>;
}

/**
 * Passes the lock service to instances that Nest did not construct (`useFactory`, `useValue`), and checks every
 * decorated method, so all mistakes are listed at startup instead of one by one on the first call.
 *
 * @throws LockConfigError with the list of mistakes
 */
export function exploreApplication(wrappers: readonly InstanceWrapper[], service: LockService): ExploredApplication {
  const providers = wrappers.flatMap(decoratedProvider);
  const plans = new Map<DeclaredMethod, MethodPlan>();
  const application: Application = { service, providers, plans, problems: new Set(), warnings: new Set() };
  const { problems, warnings } = application;
  for (const method of new Set(providers.flatMap(({ methods }) => methods))) {
    const plan = checkMethod(method, service, problems);
    if (plan) plans.set(method, plan);
  }
  // nestjs-cls's `@Transactional` and `@UseCls` both leave only a Proxy on a method. A Proxy is assumed to
  // be `@Transactional` only if the application has its TransactionHost.
  if (wrappers.some(({ metatype }) => metatype?.name === 'TransactionHost')) findTransactionsAbove(application);
  findUnlockedOverrides(application);
  const campaigns = findCampaigns(application);
  const jobs = findJobs(application, wrappers);
  findKeysHeldLonger(application);
  for (const { instance, prototype } of providers) {
    if (!isObject(instance) || !addService(instance, service)) continue;
    warnings.add(
      `An instance of ${prototype.constructor.name} is shared with another live application in this process, so its methods lock there until that application stops: give each application its own instance instead of sharing one through useValue.`,
    );
  }
  if (problems.size > 0) {
    const list = Array.from(problems, (problem) => `  - ${problem}`);
    throw new LockConfigError(['These locked methods cannot work:', ...list]);
  }
  reportBoot(
    application,
    campaigns.map(({ method }) => method),
  );
  for (const warning of warnings) logger.warn(warning);
  return { ...application, campaigns, jobs };
}

function decoratedProvider(wrapper: InstanceWrapper): DecoratedProvider[] {
  const instance: unknown = wrapper.instance;
  const prototype = prototypeOf(wrapper);
  const methods = prototype ? declaredMethodsOf(prototype) : [];
  if (!prototype || methods.length === 0) return [];
  return [{ methods, prototype, instance, isSingleton: wrapper.isDependencyTreeStatic() && !wrapper.isTransient }];
}

function prototypeOf({ instance, metatype, isAlias }: InstanceWrapper): object | undefined {
  if (isAlias) return undefined;
  if (isObject(instance)) return Object.getPrototypeOf(instance) as object | undefined;
  return (metatype as { prototype?: object } | null)?.prototype;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
