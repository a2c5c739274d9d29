import { LockConfigError } from '../../api/errors.js';
import { isListOfNames } from '../../core/toolkit/list-of-names.js';

/** What a {@link CombinedProvider} stands on. */
export interface CombinedProviderOptions {
  /**
   * The names of the providers, as registered in the module. Every process must name the same ones; for 'all' also in the
   * same order, in which they are locked.
   */
  readonly engines: readonly string[];
  /** How many of them must grant: all, or more than half of at least three. */
  readonly quorum: 'all' | 'majority';
}

const FEWEST = { all: 2, majority: 3 } as const;

/** @throws LockConfigError for options that cannot work. */
export function checkOptions({ engines, quorum }: CombinedProviderOptions): void {
  if (!isListOfNames(engines)) {
    throw new LockConfigError(
      `CombinedProvider: "engines" must be a list of names of lock providers, such as ['redis', 'mysql'].`,
    );
  }
  if (!Object.hasOwn(FEWEST, quorum)) {
    throw new LockConfigError(`CombinedProvider: "quorum" must be 'all' or 'majority'.`);
  }
  if (new Set(engines).size !== engines.length) {
    throw new LockConfigError('CombinedProvider: "engines" names a provider twice: one engine has one voice.');
  }
  if (engines.length < FEWEST[quorum]) {
    throw new LockConfigError(
      `CombinedProvider: quorum '${quorum}' needs at least ${FEWEST[quorum]} engines, but "engines" names ${engines.length}.`,
    );
  }
}
