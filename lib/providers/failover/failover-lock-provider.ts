import { LockConfigError } from '../../api/errors.js';
import type { BackendContext, LockBackend, LockProvider, Member } from '../../api/lock-provider.js';
import { FailoverBackend, memberLease } from './failover-backend.js';
import { type FailoverLockProviderOptions, type FailoverSettings, readOptions } from './failover-options.js';

/**
 * Several providers as one: locks on the preferred one that works, and on the next when it fails.
 *
 * Mutual exclusion holds through every switch, whatever part of the network each process sees: a lock is valid only as long as its
 * process has lately written to a record that all processes share, and a new provider grants only when that time is over for the locks
 * of the one before. (`Confirmation` holds the argument.) The price: one write to the record every third of `window` for each process,
 * no locks while the record cannot be reached, and a pause of about `window` at a switch. Fencing tokens grow through switches:
 * epoch · 2^52 + the provider's token.
 *
 * Mutual exclusion can break if the record loses an acknowledged write, if clocks have rates that differ by more than 1 %, or if a
 * machine is suspended for up to 2 s around a switch, which is not noticed (locks overlap for as long as it slept). A provider that loses
 * its data while it is active breaks it as it does alone.
 */
export class FailoverLockProvider implements LockProvider {
  readonly members: readonly string[];
  private readonly settings: FailoverSettings;

  /** @throws LockConfigError for options that cannot work */
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
        `FailoverLockProvider cannot use lock provider "${casStore}" as "casStore", because it may lose what it has acknowledged: use one of SQL on MySQL, MariaDB or Postgres, or ZooKeeper.`,
        { provider: casStore },
      );
    }
    const members = new Map([...all].filter(([name]) => providers.includes(name)));
    this.#assertKeepable(members);
    const fencing = [...members.values()].every(({ capabilities }) => capabilities.fencing);
    if (fencing) assertNarrowTokens(members);
    return new FailoverBackend(this.settings, context, members, store, fencing, records);
  }

  #assertKeepable(members: ReadonlyMap<string, Member>): void {
    const lease = memberLease(this.settings);
    for (const [name, { capabilities }] of members) {
      const { maxLease = Infinity } = capabilities;
      if (lease <= maxLease) continue;
      throw new LockConfigError(
        `FailoverLockProvider keeps locks for ${lease} ms (twice "window", at least 10 s), longer than "maxLease" of lock provider "${name}", which is ${maxLease} ms: lower "window", or raise maxLease in all processes.`,
        { provider: name },
      );
    }
  }
}

/** Tokens of more than 52 bits would not fit between those of two epochs, so no lock could be granted. */
function assertNarrowTokens(members: ReadonlyMap<string, Member>): void {
  for (const [name, { capabilities }] of members) {
    if (!capabilities.wideTokens) continue;
    throw new LockConfigError(
      `FailoverLockProvider of ${[...members.keys()].join(', ')} cannot be built on lock provider "${name}", because its fencing tokens take more than 52 bits, as those of another FailoverLockProvider do, and leave no room for epochs: name the providers of "${name}" instead.`,
      { provider: name },
    );
  }
}
