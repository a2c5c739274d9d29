import { type Owner, refuse as refuseOption } from '../../../core/toolkit/options.js';

const SCHEMES: readonly string[] = ['redis:', 'rediss:'];
const BEGINS_RIGHT = /^\s*rediss?:\/\//i;
/** No part of the URL is shown, because any may be of its password. */
const ENCODING =
  ' If its user or password has one of the characters @ : / ? # % or a space, write them by encodeURIComponent().';

/**
 * Refuses an address that a client would read in another way than it is meant. ioredis would connect to the host of any address, and wait for an answer
 * that is none of Redis.
 *
 * @param option where it stands, for messages, which show none of it
 * @throws LockConfigError
 */
export function addressOf(url: unknown, owner: Owner, option: string): string {
  const refuse = (fault: string): never => refuseOption(owner, option, fault);
  if (typeof url !== 'string' || !URL.canParse(url)) {
    return refuse(
      `is not a URL: write it as redis://host:6379.${typeof url === 'string' && BEGINS_RIGHT.test(url) ? ENCODING : ''}`,
    );
  }
  if (url !== url.trim()) refuse('begins or ends with a space or a line break: remove it.');
  const { protocol, username, password, pathname, hash } = new URL(url);
  if (url.includes('://') && SCHEMES.includes(protocol)) {
    if (hash !== '' || !isEncoded(username + password)) refuse(`is read in another way than it is meant.${ENCODING}`);
    // ioredis would send SELECT with NaN, whose error ends the process.
    if (!/^(?:\/\d*)?$/.test(pathname)) {
      refuse(
        `has a path that is not the number of a database: write redis://host:6379, or redis://host:6379/1 for database 1.${ENCODING}`,
      );
    }
    return url;
  }
  // No more of it, because it may have a password.
  const [scheme] = /^[a-z]+:\/\//i.exec(url) ?? [];
  return refuse(
    `${scheme === undefined ? 'has no scheme' : `begins with ${scheme}`}, and must begin with redis://, or with rediss:// for TLS: write it as redis://host:6379.`,
  );
}

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
