import { type Owner, refuse as refuseOption } from '../../../core/toolkit/options.js';

const SCHEMES: readonly string[] = ['redis:', 'rediss:'];
const HAS_REDIS_SCHEME = /^\s*rediss?:\/\//i;
/** Doesn't quote the URL, because any of it may be part of the password. */
const ENCODING =
  ' If the user or password contains a space or one of @ : / ? # %, encode it with encodeURIComponent().';

/**
 * Rejects an address that a client would misread. ioredis would connect to any URL's host and wait for a reply from a
 * server that doesn't speak Redis.
 *
 * @param option the option's name, for messages, which never quote the address
 * @throws LockConfigError
 */
export function addressOf(url: unknown, owner: Owner, option: string): string {
  const refuse = (fault: string): never => refuseOption(owner, option, fault);
  if (typeof url !== 'string' || !URL.canParse(url)) {
    return refuse(
      `is not a URL: write it as redis://host:6379.${typeof url === 'string' && HAS_REDIS_SCHEME.test(url) ? ENCODING : ''}`,
    );
  }
  if (url !== url.trim()) refuse('begins or ends with a space or a line break: remove it.');
  const { protocol, username, password, pathname, hash } = new URL(url);
  if (url.includes('://') && SCHEMES.includes(protocol)) {
    if (hash !== '' || !isEncoded(username + password)) refuse(`would be misread by the client.${ENCODING}`);
    // ioredis would send SELECT NaN, and its error would end the process.
    if (!/^(?:\/\d*)?$/.test(pathname)) {
      refuse(
        `has a path that is not a database number: write redis://host:6379, or redis://host:6379/1 for database 1.${ENCODING}`,
      );
    }
    return url;
  }
  // Quotes only the scheme, because the rest may contain a password.
  const [scheme] = /^[a-z]+:\/\//i.exec(url) ?? [];
  return refuse(
    `${scheme === undefined ? 'has no scheme' : `begins with ${scheme}`}, but must begin with redis://, or rediss:// for TLS: write it as redis://host:6379.`,
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
