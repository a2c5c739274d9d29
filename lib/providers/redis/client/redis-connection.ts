import { LockConfigError } from '../../../api/errors.js';
import { inBrackets } from '../../../api/printable.js';
import type { Random } from '../../../api/random.js';

/*
 * What this package needs from a client library. Only a library's own adapter, `ioredis.ts` or `node-redis.ts`, knows
 * about that library.
 */

/**
 * A connection to one server. It sends each command once, never queues any, and may end at any time.
 *
 * It emits `connect` when its socket is open, `ready` when it accepts commands, `error` with the cause before it ends,
 * `close` after it has ended, `end` if it does not reconnect automatically, `message` and `smessage` with a channel and
 * a text, and `moved` when a Cluster server has rejected or ended a subscription because it does not have the slot:
 * with the channel, or without one if it could be any channel.
 */
export interface RedisConnection {
  /** Connects. The outcome is also reported as an event. */
  connect(): Promise<unknown>;
  /**
   * Drops the socket. Replies that still arrive on it are ignored.
   *
   * @param reconnect whether to connect again. The library may emit `end` instead.
   */
  disconnect(reconnect?: boolean): void;
  /** Rejects with the server's error (named `ReplyError`), or with another error if the outcome is unknown. */
  call(command: string, ...args: string[]): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  /** Subscribes to a sharded channel on a Cluster server. */
  ssubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: string[]) => void): unknown;
  /**
   * The database number from the options. Defined only for a library that falls back to database 0 if the server
   * rejects that number.
   */
  database?(): number;
}

/** Creates a connection, which does nothing until `connect` is called. */
export type Connect = () => RedisConnection;

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** Maps an address reported by a server to the one that this process must use. */
export type NatMap = Readonly<Record<string, Address>> | ((key: string) => Address | null | undefined);

/** A Cluster, as seen by one of its nodes. */
export interface KnownCluster {
  /** The node's reply to `CLUSTER SLOTS`. */
  readonly slots: unknown;
  /** That node's address. */
  readonly asked: Address;
  readonly natMap?: NatMap | undefined;
  /** Creates a connection to a node of the Cluster. */
  connectTo(address: Address): RedisConnection;
}

/** Finds a Cluster node that replies. Rejects if no node does. */
export type FindCluster = () => Promise<KnownCluster>;

/** Sends each command once. */
export interface CommandSender {
  readonly isUp: boolean;
  /** Why the connection is down. */
  readonly cause: unknown;
  /** How many commands are still awaiting a reply. */
  readonly unanswered: number;
  /** `onFailure` receives the server's error, {@link NotSent}, or another error if the outcome is unknown. */
  send(command: string, args: string[], onReply: (reply: unknown) => void, onFailure: (error: unknown) => void): void;
}

/**
 * Duplicates a client, and checks that the result has the methods we need. A mock may return something else, and a
 * missing method would otherwise throw in an event listener, where nothing catches it.
 *
 * @throws LockConfigError if one of the methods is missing
 */
export function duplicateOf<T extends object>(
  duplicate: () => T | undefined,
  methods: readonly (keyof T & string)[],
): T {
  let made: T | undefined;
  try {
    made = duplicate();
  } catch (cause) {
    throw notAClient(cause);
  }
  if (made !== undefined && methods.every((method) => typeof made[method] === 'function')) return made;
  throw notAClient();
}

/** The error for a mock, a pool, an old client, or anything else that can't make connections. */
export function notAClient(cause?: unknown, what = 'The client of Redis'): LockConfigError {
  return new LockConfigError(
    `${what} cannot be duplicated${inBrackets(cause)}. Pass an ioredis or redis client (version 5 or 6 of either), an address as "url", or client options as "options". In tests, use MemoryLockProvider.`,
    { cause },
  );
}

/** The error for a database that the server does not have. */
export function noDatabase(number: number): LockConfigError {
  return new LockConfigError(
    `Redis has no database ${String(number)}, and the client would silently use database 0, where other processes may have locks. Choose an existing database: the server's "databases" setting says how many exist (16 by default), and a Cluster has only 0.`,
  );
}

/** The error for a command that was never sent. */
export class NotSent extends Error {
  override readonly name = 'NotSent';
}

/**
 * The name of an error that the server sent. Both libraries return such errors as `Error` objects, even inside arrays.
 */
export const REPLY_ERROR = 'ReplyError';

/** Whether the server sent this error. After any other error, the outcome is unknown. */
export function isReplyError(error: unknown): error is Error {
  return error instanceof Error && error.name === REPLY_ERROR;
}

/**
 * How long a socket must be idle before TCP keep-alive starts, in ms. NATs and load balancers drop connections idle for
 * 4 to 15 minutes. By default, ioredis 5 leaves keep-alive to the operating system, which starts it after 2 hours.
 */
export const KEEP_ALIVE = 10_000;

/**
 * How long to wait before the next connection attempt: 50 ms more after each failure, up to 2 s, as ioredis does by
 * default. With exponential backoff, a server that was down for half a lease might not be found until the lease had
 * ended (measured: the end of a 1.5 s outage was noticed up to 1.5 s late; with this function, 0.4 s).
 */
export function backOff(random: Random, times: number): number {
  return Math.min(50 * times, 2_000) * (0.75 + random.fraction() / 4);
}

/**
 * The shortest connect timeout, in ms. With ioredis's default of 10 s, most of a failover would be spent waiting for
 * the dead host.
 */
const MIN_CONNECT_TIMEOUT = 2_000;

/** How long opening a socket may take, in ms, if we tolerate `timeout` ms of silence. */
export function connectTimeoutFor(timeout: number): number {
  return Math.max(timeout, MIN_CONNECT_TIMEOUT);
}

/**
 * Removes the command that ioredis adds to its errors. The command contains the holder's id or the password, which must
 * not be logged.
 */
export function withoutCommand(error: unknown): unknown {
  if (error instanceof Error) Reflect.deleteProperty(error, 'command');
  return error;
}

export function nameOfAddress({ host, port }: Address): string {
  return `${host}:${port}`;
}

/** Applies a {@link NatMap} to an address. */
export function natted(address: Address, natMap: NatMap | undefined): Address {
  const name = nameOfAddress(address);
  return (typeof natMap === 'function' ? natMap(name) : natMap?.[name]) ?? address;
}
