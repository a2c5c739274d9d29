import { LockConfigError } from '../../api/errors.js';
import type { BackendContext, LockProvider } from '../../api/lock-provider.js';
import { checkProviders } from '../../core/toolkit/members.js';
import { checkGiven, type OptionNames, refuseUnknown } from '../../core/toolkit/given-options.js';
import { CombinedBackend } from './combined-backend.js';

export interface CombinedLockProviderOptions {
  /**
   * The names of the providers that must all grant, as registered in the module. At least two. Every process must name the same ones in
   * the same order, because they are locked in that order.
   */
  readonly providers: readonly string[];
}

/**
 * One lock in several providers of the same application: held while all of them grant it.
 *
 * Mutual exclusion holds while at least one provider keeps the lock, among all processes that use that provider, alone or combined: this
 * is how an application moves from one provider to another. It is down as soon as one of them is.
 *
 * All processes must name the same providers, or the same and others as docs/providers/combined.md describes. There is no fencing token,
 * because those of different providers cannot be compared.
 */
export class CombinedLockProvider implements LockProvider {
  readonly members: readonly string[];

  /** @throws LockConfigError for options that cannot work */
  constructor(options: CombinedLockProviderOptions) {
    assertOptions(options);
    this.members = options.providers;
  }

  createBackend(context: BackendContext): CombinedBackend {
    return new CombinedBackend(context, new Map(this.members.map((name) => [name, context.member(name)])));
  }
}

const OPTIONS: OptionNames<CombinedLockProviderOptions> = { providers: true };

function assertOptions(options: CombinedLockProviderOptions): void {
  checkGiven('CombinedLockProvider', options, "new CombinedLockProvider({ providers: ['redis', 'sql'] })");
  if ('quorum' in options) {
    refuse(
      `there is no option "quorum" any more, because all providers must grant: remove it, and use RedlockLockProvider instead of 'majority'`,
    );
  }
  if ('engines' in options) refuse('the option "engines" is now called "providers": rename it');
  refuseUnknown('CombinedLockProvider', options, OPTIONS);
  checkProviders(options.providers, refuse);
}

function refuse(why: string): never {
  throw new LockConfigError(`CombinedLockProvider: ${why}.`);
}
