import { LockConfigError } from '../../api/errors.js';

/**
 * Returns an error message if the server is older than `oldest`; undefined if it isn't or its version is unknown. A
 * shorter `oldest` covers all of its patch releases: 10.6 allows any 10.6.x.
 */
export function whyTooOld(product: string, version: string, oldest: string): string | undefined {
  const found = /\d+(\.\d+)*/.exec(version)?.[0];
  if (found === undefined || compare(found, oldest) >= 0) return undefined;
  return `${product} ${found} is too old for locks: use version ${oldest} or later.`;
}

/**
 * @param user the feature that can't run on such a server, such as "SQL locks"
 * @throws LockConfigError if the server is too old
 */
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
