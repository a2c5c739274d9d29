import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import { LockConfigError } from '../../api/errors.js';
import { type LeaderMethod, leaderMethodsOf } from '../methods/leader-method.js';
import { lockedMethodsOf, proxiedLocksOf } from '../methods/lock-metadata.js';
import type { LockedMethod } from '../methods/locked-method.js';
import { isUnlocked } from '../decorators/unlocked.decorator.js';
import type { LockService } from '../service/lock.service.js';
import { reportBoot } from './boot-report.js';
import { problemsOf } from './check-locked-method.js';
import { compareKeys } from './same-keys.js';
import { logger } from '../options/module-logger.js';
import { LeaderCampaigns, type LeaderProvider } from './leader-campaigns.js';
import { addService } from '../service/service-slot.js';
import { type LockedProvider, ScheduledJobs } from './scheduled-jobs.js';
import { unlockedOverrides } from './unlocked-overrides.js';

/** The methods that an application locks and runs. */
export interface ExploredApplication {
  readonly campaigns: LeaderCampaigns;
  readonly jobs: ScheduledJobs;
  readonly methods: readonly LockedMethod[];
}

/**
 * Gives the lock service to instances that Nest did not construct (`useFactory`, `useValue`), and checks every decorated method, so that
 * mistakes come as one list at boot and not one by one at the first call. Answers what begins at the end of the boot.
 *
 * @throws LockConfigError with the list of mistakes
 */
export function exploreApplication(wrappers: readonly InstanceWrapper[], service: LockService): ExploredApplication {
  const problems = new Set<string>();
  const all = new Set<LockedMethod>();
  const allLeaders = new Set<LeaderMethod>();
  const proxied = new Set<string>();
  const leaders: LeaderProvider[] = [];
  const locked: LockedProvider[] = [];
  const unlocked = new Set<string>();
  const shared = new Set<string>();
  for (const wrapper of wrappers) {
    const prototype = prototypeOf(wrapper);
    if (!prototype) continue;
    const methods = lockedMethodsOf(prototype);
    const leaderMethods = leaderMethodsOf(prototype);
    if (methods.length === 0 && leaderMethods.length === 0) continue;
    const instance: unknown = wrapper.instance;
    const isSingleton = wrapper.isDependencyTreeStatic() && !wrapper.isTransient;
    if (leaderMethods.length > 0) leaders.push({ methods: leaderMethods, instance, isSingleton });
    locked.push({ methods, prototype, instance, isSingleton });
    for (const method of methods) all.add(method);
    for (const method of leaderMethods) allLeaders.add(method);
    for (const problem of methods.flatMap((method) => problemsOf(method, service))) problems.add(problem);
    for (const { target, methodName, name } of [...methods, ...leaderMethods]) {
      if (!isUnlocked(target, methodName)) continue;
      problems.add(
        `${name}: it has a lock and @Unlocked, which is for overrides that have none: remove one of the two`,
      );
    }
    for (const { name } of proxiedLocksOf(prototype)) proxied.add(name);
    for (const warning of unlockedOverrides(prototype, instance, methods, leaderMethods)) unlocked.add(warning);
    if (isObject(instance) && addService(instance, service)) shared.add(prototype.constructor.name);
  }
  const campaigns = new LeaderCampaigns(service, leaders);
  const jobs = new ScheduledJobs(service, locked, wrappers);
  const methods = [...all];
  const leaderMethods = [...allLeaders];
  const keys = compareKeys(methods, leaderMethods, service);
  for (const problem of [...campaigns.problems, ...jobs.problems, ...keys.problems]) problems.add(problem);
  if (problems.size > 0) {
    const list = Array.from(problems, (problem) => `  - ${problem}`);
    throw new LockConfigError(['These locked methods cannot work:', ...list]);
  }
  if (hasTransactionsOfCls(wrappers)) warnOfTransactionsAbove(proxied);
  for (const warning of [...unlocked, ...keys.warnings]) logger.warn(warning);
  for (const name of shared) {
    logger.warn(
      `An instance of ${name} belongs to another live application of this process too, so its methods take their locks there until that application stops: give each application an instance of its own instead of one with useValue.`,
    );
  }
  if (!jobs.hasScheduler) warnOfNoScheduler([...methods, ...leaderMethods]);
  reportBoot(service, methods, campaigns.methods);
  return { campaigns, jobs, methods };
}

/**
 * `@Transactional` of nestjs-cls leaves no mark on a method but its Proxy, as `@UseCls` does, so only where the application has transactions of
 * it the one is taken for the other.
 */
function hasTransactionsOfCls(wrappers: readonly InstanceWrapper[]): boolean {
  return wrappers.some(({ metatype }) => metatype?.name === 'TransactionHost');
}

function warnOfNoScheduler(methods: readonly (LockedMethod | LeaderMethod)[]): void {
  const names = new Set(methods.filter(({ isScheduled }) => isScheduled).map(({ name }) => name));
  if (names.size === 0) return;
  logger.warn(
    `Nothing calls ${[...names].join(', ')} on schedule, because the application does not import ScheduleModule: ` +
      'import ScheduleModule.forRoot() of @nestjs/schedule, with { cronJobs: false } in a process that is to schedule none.',
  );
}

/** The next holder would read what was there before the commit. */
function warnOfTransactionsAbove(methods: ReadonlySet<string>): void {
  for (const method of methods) {
    logger.warn(
      `${method} releases its lock before the commit, if the decorator above @DistributedLock is @Transactional: put @DistributedLock above it.`,
    );
  }
}

function prototypeOf({ instance, metatype, isAlias }: InstanceWrapper): object | undefined {
  if (isAlias) return undefined;
  if (isObject(instance)) return Object.getPrototypeOf(instance) as object | undefined;
  return (metatype as { prototype?: object } | null)?.prototype;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
