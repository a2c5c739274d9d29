import type { Instance } from '../../api/lock-provider.js';

const INSTANCE_DIGITS = 12;
const LISTED_HOLDERS = 100;

/** The id of the instance that created the given id: every id starts with its instance's id. */
export function instanceIdOf(id: string): string {
  return id.slice(0, INSTANCE_DIGITS);
}

/** The distinct instances of the first 100 holders. */
export function instancesOf(holders: Iterable<string>): readonly string[] {
  const ids = new Set<string>();
  let count = 0;
  for (const holder of holders) {
    if (count === LISTED_HOLDERS) break;
    count += 1;
    ids.add(instanceIdOf(holder));
  }
  return [...ids];
}

/** Identifies a holder's instance on a backend that doesn't store names: this one by name, others by id. */
export function nameOrIdOf(holder: string, own: Instance): string {
  const id = instanceIdOf(holder);
  return id === own.id ? own.name : id;
}
