import type { LockCapabilities } from '../api/lock-provider.js';
import { describe } from '../core/plan/lock-plan.js';
import { LockManager } from '../core/lock-manager.js';
import type { LockManagerOptions } from '../core/lock-manager-options.js';

/** The capabilities of a provider, for a stand-in that refuses everything else. */
export interface Abilities extends LockCapabilities {
  /** The provider keeps records, so jobs can have ticks. */
  readonly records: boolean;
}

/**
 * The capabilities of each provider. Their backends are created, as at boot, but never connected.
 *
 * @throws LockConfigError for mistakes that fail the boot, such as a missing member of a composite
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
