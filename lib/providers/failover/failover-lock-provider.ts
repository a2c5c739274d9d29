import { LockConfigError } from '../../api/errors.js';
import type { BackendContext, LockBackend, LockProvider, Member } from '../../api/lock-provider.js';
import { commonCapabilities } from '../shared/members.js';
import { FailoverBackend, memberLease } from './failover-backend.js';
import { type FailoverLockProviderOptions, type FailoverSettings, readOptions } from './failover-options.js';

/**
 * Combines several providers: locks use the preferred one as long as it works, and the next one if it fails.
 *
 * Mutual exclusion holds through every switch, regardless of which parts of the network each process can reach. A lock
 * is valid only if its process has recently written to a record shared by all processes, and a new provider grants
 * locks only after all earlier ones have ended (see `Confirmation`). In exchange, each process writes to the record
 * every third of `window`, no locks are granted while the record is unreachable, and a switch pauses locks for about
 * one `window`. Fencing tokens keep increasing across switches: epoch · 2^52 + the provider's token.
 *
 * Mutual exclusion can break if the record loses an acknowledged write, if clock rates differ by more than 1 %, or if a
 * machine is suspended for up to 2 s around a switch without being detected (locks overlap for that time). As without
 * failover, it also breaks if the active provider loses its data.
 */
export class FailoverLockProvider implements LockProvider {
  readonly members: readonly string[];
  private readonly settings: FailoverSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: FailoverLockProviderOptions) {
    this.settings = readOptions(options);
    const { providers, casStore } = this.settings;
    this.members = [...new Set([...providers, casStore])];
  }

  createBackend(context: BackendContext): LockBackend {
    const { providers, casStore } = this.settings;
    const all = new Map(this.members.map((name) => [name, context.member(name)]));
    const { casStore: store, records } = all.get(casStore) ?? {};
    if (!store) {
      throw new LockConfigError(
        `FailoverLockProvider cannot use lock provider "${casStore}" as "casStore", because it can lose acknowledged writes. Use a SQL provider (MySQL, MariaDB, or Postgres) or ZooKeeper.`,
        { provider: casStore },
      );
    }
    const members = new Map([...all].filter(([name]) => providers.includes(name)));
    this.#assertUsable(members);
    return new FailoverBackend(this.settings, context, members, store, records);
  }

  /**
   * Checks that the members can keep the locks, and that their tokens fit into 52 bits; otherwise, locks couldn't be
   * granted.
   */
  #assertUsable(members: ReadonlyMap<string, Member>): void {
    const lease = memberLease(this.settings);
    const { fencing } = commonCapabilities([...members.values()]);
    for (const [provider, { capabilities }] of members) {
      const { maxLease = Infinity, wideTokens = false } = capabilities;
      if (lease > maxLease) {
        throw new LockConfigError(
          `FailoverLockProvider keeps locks for ${lease} ms (twice "window", at least 10 s), which exceeds "maxLease" of lock provider "${provider}" (${maxLease} ms). Lower "window", or raise maxLease in all processes.`,
          { provider },
        );
      }
      if (fencing && wideTokens) {
        throw new LockConfigError(
          `FailoverLockProvider of ${[...members.keys()].join(', ')} cannot use lock provider "${provider}", because fencing tokens from a FailoverLockProvider leave no room for another level of epochs. List the providers of "${provider}" instead.`,
          { provider },
        );
      }
    }
  }
}
