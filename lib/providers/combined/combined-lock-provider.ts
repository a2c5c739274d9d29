import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { namesOfMembers } from '../shared/members.js';
import { type OptionTable, read } from '../../core/toolkit/options.js';
import { CombinedBackend } from './combined-backend.js';

export interface CombinedLockProviderOptions {
  /**
   * The names of the providers that must all grant, as registered in the module. At least two. Every process must name the same ones in
   * the same order, because they are locked in that order.
   */
  readonly providers: readonly string[];
}

const OPTIONS = { providers: namesOfMembers() } satisfies OptionTable<CombinedLockProviderOptions>;

/**
 * One lock in several providers of the same application: held while all of them grant it.
 *
 * Mutual exclusion holds while at least one provider keeps the lock, among all processes that use that provider, alone or combined: this
 * is how an application moves from one provider to another. It is down as soon as one of them is.
 *
 * All processes must name the same providers, or the same and others as docs/providers/failover.md describes. There is no fencing token,
 * because those of different providers cannot be compared.
 */
export class CombinedLockProvider implements LockProvider {
  readonly members: readonly string[];

  /** @throws LockConfigError for options that cannot work */
  constructor(options: CombinedLockProviderOptions) {
    const example = "new CombinedLockProvider({ providers: ['redis', 'sql'] })";
    this.members = read({ name: 'CombinedLockProvider', example }, options, OPTIONS).providers;
  }

  createBackend(context: BackendContext): LockBackend {
    return new CombinedBackend(context, new Map(this.members.map((name) => [name, context.member(name)])));
  }
}
