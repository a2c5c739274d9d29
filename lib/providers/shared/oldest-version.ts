import { LockConfigError } from '../../api/errors.js';

/**
 * The sentence for a server on which locks cannot work, because it is older than `oldest`; undefined for one that is not, or that tells no
 * version. Fewer parts match all that follow: 10.6 is any 10.6.
 */
export function whyTooOld(product: string, version: string, oldest: string): string | undefined {
  const found = /\d+(\.\d+)*/.exec(version)?.[0];
  if (found === undefined || compare(found, oldest) >= 0) return undefined;
  return `${product} ${found} is too old for locks: it must be ${oldest} or later.`;
}

/** @param user whose locks they are, such as "SQL locks". @throws LockConfigError for such a server */
export function refuseOlder(user: string, product: string, version: string, oldest: string): void {
  const reason = whyTooOld(product, version, oldest);
  if (reason !== undefined) throw new LockConfigError(`${user} cannot use this server: ${reason}`);
}

function compare(a: string, b: string): number {
  const [left, right] = [a, b].map((version) => version.split('.').map(Number)) as [number[], number[]];
  for (const [index, part] of right.entries()) {
    const difference = (left[index] ?? 0) - part;
    if (difference !== 0) return difference;
  }
  return 0;
}
