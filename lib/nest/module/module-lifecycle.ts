import {
  Injectable,
  Module,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import { LockConfigError } from '../../api/errors.js';
import { LockManager } from '../../core/lock-manager.js';
import { clearTimeout, setTimeout } from '../../core/toolkit/real-timers.js';
import { warnOfSkippedRuns, warnOfUnhandledSignals } from './boot-report.js';
import { type ExploredApplication, exploreApplication } from './explore-application.js';
import { startCampaigns } from './leader-campaigns.js';
import { bootingServices, liveServices } from '../service/service-slot.js';
import { LockService } from '../service/lock.service.js';

const SIGNAL_CHECK_AFTER_MS = 1_000;

/**
 * Starts and stops the module in an application. At startup, it explores the application, then starts the leader
 * methods' campaigns and the jobs. At shutdown, it drains and stops the core after all other modules, because the
 * module is global.
 */
@Injectable()
export class ModuleLifecycle implements OnModuleInit, OnModuleDestroy, OnApplicationShutdown {
  #explored: ExploredApplication | undefined;
  #signalCheck: NodeJS.Timeout | undefined;

  constructor(
    private readonly modules: ModulesContainer,
    private readonly moduleRef: ModuleRef,
  ) {}

  async onModuleInit(): Promise<void> {
    try {
      this.#assertOnlyOne();
      this.#explored = exploreApplication(this.#wrappers, this.#lockService());
    } catch (error) {
      // Nest doesn't close an application that failed to boot, so an open connection would keep the process alive.
      await this.#stop();
      throw error;
    }
  }

  /** Called by {@link DistributedLockCoreModule}, after all other boot hooks. */
  onBooted(): void {
    const explored = this.#explored;
    if (!explored) return;
    const { service, campaigns, jobs } = explored;
    bootingServices.delete(service);
    liveServices.add(service);
    warnOfSkippedRuns(explored);
    startCampaigns(service, campaigns);
    // Looks for missed and abandoned runs without waiting for them.
    for (const [job, cron] of jobs) job.start(() => service.scheduler.fires(cron));
    // On an application context, enableShutdownHooks() can only be called after startup.
    this.#signalCheck = setTimeout(() => {
      warnOfUnhandledSignals(explored);
    }, SIGNAL_CHECK_AFTER_MS).unref();
  }

  // Nest calls this after the hooks of most other modules, and before the servers close. Connections that close in a
  // later hook still work.
  onModuleDestroy(): void {
    this.#explored?.service.leadership.end();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#stop();
  }

  #assertOnlyOne(): void {
    const instances = this.#wrappers.filter((wrapper) => wrapper.metatype === ModuleLifecycle);
    if (instances.length === 1) return;
    throw new LockConfigError(
      'DistributedLockModule.forRoot() is imported more than once: import it once, in the root module, and use "providers" for several backends.',
    );
  }

  #lockService(): LockService {
    const wrapper = this.#wrappers.find(({ token }) => token === LockService);
    if (wrapper && !wrapper.isDependencyTreeStatic()) {
      throw new LockConfigError(
        'DistributedLockModule.forRootAsync() injects something request-scoped, which would make every locked class request-scoped: inject singletons only, and use "context" for request values.',
      );
    }
    return this.moduleRef.get(LockService, { strict: false });
  }

  // After a failed boot, there may be two managers, or none.
  async #stop(): Promise<void> {
    clearTimeout(this.#signalCheck);
    const instances = this.#wrappers.map(({ instance }): unknown => instance);
    await Promise.all(instances.filter((each) => each instanceof LockManager).map((manager) => manager.stop()));
    for (const each of instances) {
      if (!(each instanceof LockService)) continue;
      bootingServices.delete(each);
      liveServices.delete(each);
    }
  }

  // Here, injectables are guards, interceptors, pipes, and filters given as classes.
  get #wrappers(): InstanceWrapper[] {
    return [...this.modules.values()].flatMap(({ providers, controllers, injectables }) =>
      [providers, controllers, injectables].flatMap((each) => [...each.values()] as InstanceWrapper[]),
    );
  }
}

/**
 * Finishes the lock module's startup after all other modules' hooks. `ScheduleModule` creates its jobs in such a hook
 * and is also global, so their order would depend on the application's imports. A leader's task, or a job that makes up
 * for a missed tick, may need any other hook's result.
 */
@Module({})
export class DistributedLockCoreModule implements OnApplicationBootstrap {
  constructor(
    private readonly moduleRef: ModuleRef,
    modules: ModulesContainer,
  ) {
    // Nest first calls the hooks of the modules farthest from the root module. The root module has distance 1.
    for (const module of modules.values()) if (module.metatype === DistributedLockCoreModule) module.distance = 0;
  }

  onApplicationBootstrap(): void {
    this.moduleRef.get(ModuleLifecycle, { strict: false }).onBooted();
  }
}
