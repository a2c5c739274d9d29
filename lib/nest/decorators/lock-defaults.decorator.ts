import { type ClassLockDefaults, recordClassDefaults } from '../methods/method-plan.js';
import type { Configurable } from '../methods/decorator-options.js';

/**
 * Sets defaults for all `@DistributedLock` methods, and `provider` and `lease` for the `@RunAsLeader` and `@OnlyLeader` methods, that a class declares, or that classes declare which extend it. The method's own
 * options win. A function gets the module's `config`, once, at boot. An inherited method keeps the defaults of the class that declares it.
 */
export function LockDefaults(defaults: Configurable<ClassLockDefaults>): ClassDecorator {
  return (target) => {
    recordClassDefaults(target, defaults);
  };
}
