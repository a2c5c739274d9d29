import { LockConfigError } from '../../lock/errors.js';
import { type Duration, toMilliseconds } from '../../lock/duration.js';
import { HARDENED, type RedisClient, type RedisConnection } from './redis-client.js';

/**
 * Where Redis is; exactly one of `client`, `url` and `options`.
 *
 * Whichever is given, the provider makes two connections of its own, one for commands and one for messages, and closes those alone.
 */
export interface RedisLockProviderOptions {
  /** A client of ioredis 5 or 6, of a single server or of Sentinel. It is duplicated, never used or closed. */
  readonly client?: RedisClient | undefined;
  /** Such as `redis://user:password@host:6379/0`; `rediss:` for TLS. Needs `ioredis`. */
  readonly url?: string | undefined;
  /** The options of an ioredis client, for Sentinel and TLS. Needs `ioredis`. */
  readonly options?: object | undefined;
  /**
   * How long the server may be silent while commands are out, in ms, before the connection counts as dead and is made anew.
   * Default 2 s, at least 50 ms.
   */
  readonly commandTimeout?: Duration | undefined;
}

/** The options, checked. */
export interface RedisSettings {
  readonly source: RedisLockProviderOptions;
  readonly patience: number;
}

/** @throws LockConfigError for options that cannot work. */
export function readOptions(options: RedisLockProviderOptions): RedisSettings {
  const { client, url, options: clientOptions } = options;
  if ([client, url, clientOptions].filter((given) => given !== undefined).length !== 1) {
    throw new LockConfigError('RedisLockProvider needs exactly one of "client", "url" and "options".');
  }
  if (url !== undefined && !URL.canParse(url)) {
    throw new LockConfigError('RedisLockProvider: "url" is not a URL: write it as redis://host:6379.');
  }
  if (client !== undefined && typeof client.duplicate !== 'function') {
    throw new LockConfigError(
      'RedisLockProvider: "client" is not an ioredis client (version 5 or 6): it cannot be duplicated.',
    );
  }
  if (client !== undefined && 'isCluster' in client && client.isCluster) {
    throw new LockConfigError(
      'RedisLockProvider works with a single server or Sentinel, not yet with Redis Cluster: give it a client of one server.',
    );
  }
  return { source: options, patience: toMilliseconds(options.commandTimeout ?? '2s', 'commandTimeout', { min: 50 }) };
}

/** Makes a connection that does nothing until it is told to connect. */
export type Connect = () => RedisConnection;

/** @throws LockConfigError when `ioredis` is needed and not installed. */
export async function connectionsOf({ source }: RedisSettings): Promise<Connect> {
  const { client, url, options } = source;
  if (client) return () => client.duplicate(HARDENED);
  const { Redis } = await loadIoredis();
  return () => (url === undefined ? new Redis({ ...options, ...HARDENED }) : new Redis(url, HARDENED));
}

type Ioredis = { readonly Redis: new (...args: [object] | [string, object]) => RedisConnection };

async function loadIoredis(): Promise<Ioredis> {
  try {
    // An optional peer: imported only where the application left it to us to make a client.
    return await import('ioredis');
  } catch (cause) {
    throw new LockConfigError(
      'RedisLockProvider needs the package "ioredis" for "url" and "options": npm install ioredis.',
      {
        cause,
      },
    );
  }
}
