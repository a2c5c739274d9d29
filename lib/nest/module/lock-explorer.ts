import {
  Inject,
  Injectable,
  type LoggerService,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import { LockConfigError } from '../../api/errors.js';
import { LockManager } from '../../core/lock-manager.js';
import { leaderMethodsOf, unledOverridesOf } from '../decorators/leader-method.js';
import { reportBoot } from './boot-report.js';
import { LeaderCampaigns, type LeaderProvider } from './leader-campaigns.js';
import { liveServices } from './live-services.js';
import { loggerOf } from './module-logger.js';
import { type DistributedLockModuleOptions, MODULE_OPTIONS_TOKEN } from './module-options.js';
import { lockedMethodsOf, proxiedLocksOf, unlockedOverridesOf } from '../decorators/lock-metadata.js';
import { LockService } from '../service/lock.service.js';
import type { LockedMethod } from '../decorators/locked-method.js';
import { fillServiceSlot, serviceInSlot } from './service-slot.js';

/**
 * Explores the whole application at its start: gives the lock service to instances that Nest did not construct
 * (`useFactory`, `useValue`), and checks every decorated method, so that mistakes come as one list at boot and not one by
 * one at the first call. Then it campaigns for what leader methods lead. At the end it drains and stops the core: the module is global,
 * so this is after all others.
 */
@Injectable()
export class LockExplorer implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy, OnApplicationShutdown {
  #service: LockService | undefined;
  #campaigns: LeaderCampaigns | undefined;

  constructor(
    private readonly modules: ModulesContainer,
    private readonly moduleRef: ModuleRef,
    @Inject(MODULE_OPTIONS_TOKEN) private readonly options: DistributedLockModuleOptions,
  ) {}

  async onModuleInit(): Promise<void> {
    try {
      this.#assertOnlyOne();
      this.#service = this.#lockService();
      this.#bindAndCheck(this.#service);
    } catch (error) {
      // Nobody closes an application that failed to boot, and an open connection would keep the process alive.
      await this.#stop();
      throw error;
    }
  }

  onApplicationBootstrap(): void {
    this.#campaigns?.start(loggerOf(this.options));
  }

  // Nest calls it after those of most other modules, and before the servers close. Connections that close in a later hook still work.
  onModuleDestroy(): void {
    this.#service?.leadership.end();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#stop();
  }

  #assertOnlyOne(): void {
    const explorers = [...this.#wrappers()].filter((wrapper) => wrapper.metatype === LockExplorer);
    if (explorers.length === 1) return;
    throw new LockConfigError(
      'DistributedLockModule.forRoot() is imported more than once: import it once, in the root module, and name several backends with "providers".',
    );
  }

  #lockService(): LockService {
    const wrapper = [...this.#wrappers()].find(({ token }) => token === LockService);
    if (wrapper && !wrapper.isDependencyTreeStatic()) {
      throw new LockConfigError(
        'DistributedLockModule.forRootAsync() injects something request-scoped, which would make every locked class request-scoped: inject singletons only, and use "context" for values of the request.',
      );
    }
    return this.moduleRef.get(LockService, { strict: false });
  }

  #bindAndCheck(service: LockService): void {
    const problems = new Set<string>();
    const all = new Set<LockedMethod>();
    const proxied = new Set<string>();
    const warnings = new Set<string>();
    const leaders: LeaderProvider[] = [];
    for (const wrapper of this.#wrappers()) {
      const prototype = prototypeOf(wrapper);
      if (!prototype) continue;
      const methods = lockedMethodsOf(prototype);
      const leaderMethods = leaderMethodsOf(prototype);
      if (methods.length === 0 && leaderMethods.length === 0) continue;
      const instance: unknown = wrapper.instance;
      const isSingleton = wrapper.isDependencyTreeStatic() && !wrapper.isTransient;
      if (leaderMethods.length > 0) leaders.push({ methods: leaderMethods, instance, isSingleton });
      for (const method of methods) all.add(method);
      for (const problem of methods.flatMap((method) => method.problems(service, prototype))) problems.add(problem);
      for (const { name } of proxiedLocksOf(prototype)) proxied.add(name);
      for (const { name, overridden } of unlockedOverridesOf(prototype)) {
        warnings.add(
          `${name} overrides ${overridden} without @DistributedLock, so its calls are not locked: decorate it as well.`,
        );
      }
      for (const { name, overridden } of unledOverridesOf(prototype)) {
        warnings.add(
          `${name} overrides ${overridden} without @OnlyLeader, so it runs in every process: decorate it as well.`,
        );
      }
      // A value that several applications share may still have the service of one that has stopped.
      if (isObject(instance) && !liveServices.has(serviceInSlot(instance))) fillServiceSlot(instance, service);
    }
    this.#campaigns = new LeaderCampaigns(service, leaders);
    for (const problem of this.#campaigns.problems) problems.add(problem);
    if (problems.size > 0) {
      throw new LockConfigError(
        `These locked methods cannot work:\n${[...problems].map((problem) => `  - ${problem}`).join('\n')}`,
      );
    }
    const logger = loggerOf(this.options);
    for (const warning of warnings) logger.warn(warning);
    this.#warnOfTransactionsAbove(proxied, logger);
    reportBoot(service.manager, all, this.#campaigns.methods, logger);
  }

  /**
   * The next holder would read what was there before the commit. `@Transactional` of nestjs-cls leaves no mark on a method
   * but its Proxy, as `@UseCls` does, so only where the application has transactions of it the one is taken for the other.
   */
  #warnOfTransactionsAbove(methods: ReadonlySet<string>, logger: LoggerService): void {
    if (methods.size === 0 || ![...this.#wrappers()].some(({ metatype }) => metatype?.name === 'TransactionHost'))
      return;
    for (const method of methods) {
      logger.warn(
        `${method} releases its lock before the commit, if the decorator above @DistributedLock is @Transactional: put @DistributedLock above it.`,
      );
    }
  }

  // After a failed boot there may be two managers or none.
  async #stop(): Promise<void> {
    const instances = [...this.#wrappers()].map(({ instance }): unknown => instance);
    await Promise.all(instances.filter((each) => each instanceof LockManager).map((manager) => manager.stop()));
    for (const each of instances) if (each instanceof LockService) liveServices.remove(each);
  }

  // Injectables are guards, interceptors, pipes and filters that are named by their class.
  *#wrappers(): Generator<InstanceWrapper> {
    for (const module of this.modules.values()) {
      yield* module.providers.values();
      yield* module.controllers.values();
      yield* module.injectables.values();
    }
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
