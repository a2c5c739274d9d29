import type { LockCapabilities } from '../api/lock-provider.js';
import { describe } from '../core/plan/lock-plan.js';
import { LockManager } from '../core/lock-manager.js';
import type { LockManagerOptions } from '../core/lock-manager-options.js';

/** A provider's capabilities, for a stand-in that refuses everything else. */
export interface Abilities extends LockCapabilities {
  /** The provider keeps records, so jobs can have ticks. */
  readonly records: boolean;
}

/**
 * Each provider's capabilities. The backends are created, as at startup, but never connected.
 *
 * @throws LockConfigError for mistakes that make startup fail, such as a missing composite member
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
