import { type ConfiguredDuration, toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { checkGiven, type OptionNames, refuseUnknown, unknownIn } from '../../core/toolkit/given-options.js';

export interface MemcachedLockProviderOptions {
  /**
   * The server, as `host:port` (`[::1]:11211` for IPv6); the default port is 11211. One server: with several, a change of
   * their list would move locks, and two callers could hold one.
   */
  readonly server: string;
  /**
   * How long a command may stay unanswered, in ms, before the connection counts as dead and is replaced. Default 2 s, at
   * least 50 ms and at most 24.8 days.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
}

/** The options, checked. */
export interface MemcachedSettings {
  readonly host: string;
  readonly port: number;
  readonly commandTimeout: number;
}

const OPTIONS: OptionNames<MemcachedLockProviderOptions> = { server: true, commandTimeout: true };

const DEFAULT_PORT = 11211;
const SERVER = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:/@[\]]+))(?::(\d{1,5}))?$/;

/** @throws LockConfigError for options that cannot work. */
export function readOptions(options: MemcachedLockProviderOptions): MemcachedSettings {
  checkGiven('MemcachedLockProvider', options, "new MemcachedLockProvider({ server: 'localhost:11211' })");
  const { server, commandTimeout = '2s' } = options;
  const [, ipv6, name, port = String(DEFAULT_PORT)] = (typeof server === 'string' && SERVER.exec(server)) || [];
  const host = ipv6 ?? name;
  if (host === undefined || Number(port) < 1 || Number(port) > 65_535) {
    throw new LockConfigError(
      `MemcachedLockProvider: "server" must be host:port, such as localhost:11211.${unknownIn(options, OPTIONS)}`,
    );
  }
  refuseUnknown('MemcachedLockProvider', options, OPTIONS);
  return { host, port: Number(port), commandTimeout: toMilliseconds(commandTimeout, 'commandTimeout', { min: 50 }) };
}
