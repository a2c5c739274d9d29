import {
  Injectable,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import { LockConfigError } from '../../api/errors.js';
import { LockManager } from '../../core/lock-manager.js';
import { warnOfSkippedRuns } from './boot-report.js';
import { type ExploredApplication, exploreApplication } from './explore-application.js';
import { bootingServices, liveServices } from '../service/service-slot.js';
import { LockService } from '../service/lock.service.js';

/**
 * Starts and ends what the module does in an application. At the start the application is explored; then it campaigns for what its leader
 * methods lead. At the end it drains and stops the core: the module is global, so this is after all others.
 */
@Injectable()
export class ModuleLifecycle implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy, OnApplicationShutdown {
  #service: LockService | undefined;
  #explored: ExploredApplication | undefined;

  constructor(
    private readonly modules: ModulesContainer,
    private readonly moduleRef: ModuleRef,
  ) {}

  async onModuleInit(): Promise<void> {
    try {
      this.#assertOnlyOne();
      this.#service = this.#lockService();
      this.#explored = exploreApplication([...this.#wrappers()], this.#service);
    } catch (error) {
      // Nobody closes an application that failed to boot, and an open connection would keep the process alive.
      await this.#stop();
      throw error;
    }
  }

  onApplicationBootstrap(): void {
    this.#explored?.campaigns.start();
  }

  /** After all hooks of the boot: {@link EndOfBoot} calls it. */
  onBooted(): void {
    if (!this.#service || !this.#explored) return;
    bootingServices.delete(this.#service);
    liveServices.add(this.#service);
    warnOfSkippedRuns(this.#explored);
    this.#explored.jobs.start();
  }

  // Nest calls it after those of most other modules, and before the servers close. Connections that close in a later hook still work.
  onModuleDestroy(): void {
    this.#service?.leadership.end();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#stop();
  }

  #assertOnlyOne(): void {
    const instances = [...this.#wrappers()].filter((wrapper) => wrapper.metatype === ModuleLifecycle);
    if (instances.length === 1) return;
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

  // After a failed boot there may be two managers or none.
  async #stop(): Promise<void> {
    const instances = [...this.#wrappers()].map(({ instance }): unknown => instance);
    await Promise.all(instances.filter((each) => each instanceof LockManager).map((manager) => manager.stop()));
    for (const each of instances) {
      if (!(each instanceof LockService)) continue;
      bootingServices.delete(each);
      liveServices.delete(each);
    }
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
