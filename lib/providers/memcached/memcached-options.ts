import type { ConfiguredDuration } from '../../api/duration.js';
import { duration, type OptionTable, read, secret } from '../../core/toolkit/options.js';

export interface MemcachedLockProviderOptions {
  /**
   * The server's address, as `host:port` (`[::1]:11211` for IPv6). The default port is 11211. Only one server is
   * supported, because changing a list of servers would move locks between them, and two callers could then hold the
   * same lock.
   */
  readonly server: string;
  /**
   * How long to wait for a command's response, in ms, before the connection is considered dead and replaced. At least
   * 50 ms and at most 24.8 days. Default 2 s.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
}

export interface MemcachedSettings {
  readonly host: string;
  readonly port: number;
  readonly commandTimeout: number;
}

const DEFAULT_PORT = 11211;
const SERVER = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:/@[\]]+))(?::(\d{1,5}))?$/;

const OPTIONS = {
  server: secret('host:port, such as localhost:11211', (server) => {
    const [, ipv6, name, port = DEFAULT_PORT] = (typeof server === 'string' && SERVER.exec(server)) || [];
    const host = ipv6 ?? name;
    return host === undefined || Number(port) < 1 || Number(port) > 65_535 ? undefined : { host, port: Number(port) };
  })
    .written()
    .required(),
  commandTimeout: duration({ min: 50 }).or('2s'),
} satisfies OptionTable<MemcachedLockProviderOptions>;

/** @throws LockConfigError for invalid options */
export function readOptions(options: MemcachedLockProviderOptions): MemcachedSettings {
  const owner = { name: 'MemcachedLockProvider', example: "new MemcachedLockProvider({ server: 'localhost:11211' })" };
  const { server, commandTimeout } = read(owner, options, OPTIONS);
  return { ...server, commandTimeout };
}
