import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { namesOfMembers } from '../shared/members.js';
import { type OptionTable, read } from '../../core/toolkit/options.js';
import { CombinedBackend } from './combined-backend.js';

export interface CombinedLockProviderOptions {
  /**
   * The registered names of the providers that must all grant a lock. At least two. Every process must list the same
   * names in the same order, because they are locked in that order.
   */
  readonly providers: readonly string[];
}

const OPTIONS = { providers: namesOfMembers() } satisfies OptionTable<CombinedLockProviderOptions>;

/**
 * Locks several providers of the application as one: a lock is held while all of them grant it.
 *
 * As long as at least one provider keeps the lock, mutual exclusion holds among all processes that use that provider,
 * directly or combined. You can use this to migrate from one provider to another. If any provider is down, no
 * locks can be acquired.
 *
 * All processes must list the same providers, except during a migration as described in docs/providers/failover.md.
 * There is no fencing token, because tokens from different providers can't be compared.
 */
export class CombinedLockProvider implements LockProvider {
  readonly members: readonly string[];

  /** @throws LockConfigError for invalid options */
  constructor(options: CombinedLockProviderOptions) {
    const example = "new CombinedLockProvider({ providers: ['redis', 'sql'] })";
    this.members = read({ name: 'CombinedLockProvider', example }, options, OPTIONS).providers;
  }

  createBackend(context: BackendContext): LockBackend {
    return new CombinedBackend(context, new Map(this.members.map((name) => [name, context.member(name)])));
  }
}
