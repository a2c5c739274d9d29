import type { LockCapabilities } from '../api/lock-provider.js';
import { describe } from '../core/plan/lock-plan.js';
import { LockManager } from '../core/lock-manager.js';
import type { LockManagerOptions } from '../core/lock-manager-options.js';

/** The abilities of a provider, for a stand-in that refuses the rest. */
export interface Abilities extends LockCapabilities {
  /** The provider keeps records, so jobs can have ticks there. */
  readonly records: boolean;
}

/**
 * The capabilities of each provider: their backends are made, as at boot, and never connected.
 *
 * @throws LockConfigError for what fails the boot, such as members of a composite that are missing
 */
export function capabilitiesOf(options: LockManagerOptions): ReadonlyMap<string, Abilities> {
  const manager = new LockManager(options);
  return new Map(
    manager.providerNames.map((name) => {
      const { capabilities, records } = describe(manager.plan({ provider: name }));
      return [name, { ...capabilities, records }];
    }),
  );
}
