import { type ClassLockDefaults, recordClassDefaults } from '../methods/method-plan.js';
import type { Configurable } from '../methods/decorator-options.js';

/**
 * Sets defaults for the `@DistributedLock` methods that a class or its subclasses declare, and `provider` and `lease`
 * for their `@RunAsLeader` and `@OnlyLeader` methods. The method's own options take precedence. If you pass a function,
 * it's called once, at boot, with the module's `config`. An inherited method keeps the defaults of the class that
 * declares it.
 *
 * @example
 * ```ts
 * @LockDefaults({ wait: '10s', provider: 'redis' })
 * @Injectable()
 * export class Billing {}
 * ```
 */
export function LockDefaults(defaults: Configurable<ClassLockDefaults>): ClassDecorator {
  return (target) => {
    recordClassDefaults(target, defaults);
  };
}
