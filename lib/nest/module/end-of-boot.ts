import { Module, type OnApplicationBootstrap } from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import { ModuleLifecycle } from './module-lifecycle.js';

/**
 * Ends the boot of the lock module after the hooks of all other modules. `ScheduleModule` makes its jobs in such a hook, and is as global as the lock module, so
 * the order of these two depends on the imports of the application. A job that is run for a missed tick may need what the last of the others does.
 */
@Module({})
export class EndOfBoot implements OnApplicationBootstrap {
  constructor(
    private readonly moduleRef: ModuleRef,
    modules: ModulesContainer,
  ) {
    // Nest calls the hooks of modules by their distance from the root module, which has 1, the farthest first.
    for (const module of modules.values()) if (module.metatype === EndOfBoot) module.distance = 0;
  }

  onApplicationBootstrap(): void {
    this.moduleRef.get(ModuleLifecycle, { strict: false }).onBooted();
  }
}
