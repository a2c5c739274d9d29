import type { Member } from '../../api/lock-provider.js';
import { shown } from '../../api/printable.js';
import { option, type Option, refuse } from '../../core/toolkit/options.js';

/** The `commandTimeout` of each member; undefined if one of them does not connect again by itself, as far as is declared. */
export function timeoutsOf(members: readonly Member[]): readonly number[] | undefined {
  const timeouts = members.flatMap(({ commandTimeout }) => commandTimeout ?? []);
  return timeouts.length === members.length ? timeouts : undefined;
}

/** The option `providers` of a provider that is built on others: a list of at least two names, each one time. */
export function namesOfMembers(): Option<readonly string[]> {
  const wanted = "a list of names of lock providers, such as ['redis', 'sql']";
  return option<readonly string[]>(wanted, (given, owner, name) => {
    // A text has a length and can be iterated too: 'ab' would be taken for a and b.
    if (!Array.isArray(given)) return undefined;
    const other: unknown = given.find((each) => typeof each !== 'string');
    if (other !== undefined || given.includes(undefined)) {
      refuse(owner, name, `is a list with ${shown(other)} in it, but must be ${wanted}.`);
    }
    if (given.length < 2 || new Set(given).size < given.length) {
      refuse(owner, name, `names ${given.join(', ') || 'none'}, but must name at least two lock providers, each once.`);
    }
    return given as readonly string[];
  })
    .written()
    .required();
}
