import type { Member } from '../../api/lock-provider.js';
import { shown } from '../../api/printable.js';

/** The `commandTimeout` of each member; undefined if one of them does not connect again by itself, as far as is declared. */
export function timeoutsOf(members: readonly Member[]): readonly number[] | undefined {
  const timeouts = members.flatMap(({ commandTimeout }) => commandTimeout ?? []);
  return timeouts.length === members.length ? timeouts : undefined;
}

function describe(providers: unknown): string {
  const other: unknown = Array.isArray(providers) ? providers.find((name) => typeof name !== 'string') : undefined;
  return other === undefined ? shown(providers) : `a list with ${shown(other)} in it`;
}

/** The option `providers` of a provider that is built on others: a list of at least two names, each once. `refuse` throws. */
export function checkProviders(providers: readonly string[], refuse: (why: string) => never): void {
  // A text has a length and can be iterated too: 'ab' would be taken for a and b.
  if (!Array.isArray(providers) || !providers.every((name) => typeof name === 'string')) {
    refuse(
      `"providers" must be a list of names of lock providers, such as ['redis', 'sql'], and is ${describe(providers)}`,
    );
  }
  if (providers.length < 2 || new Set(providers).size < providers.length) {
    refuse(`"providers" names ${providers.join(', ') || 'none'}, but must name at least two lock providers, each once`);
  }
}
