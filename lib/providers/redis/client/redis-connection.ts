import { LockConfigError } from '../../../api/errors.js';
import type { Random } from '../../../api/random.js';

/*
 * The part of a client library that this package needs. There is one file per library, `ioredis.ts` and `node-redis.ts`; nothing else knows them.
 */

/**
 * One connection of our own to one server. It sends each command once, keeps none for later, and may end at any time.
 *
 * Its events: `connect` when its socket is open, `ready` when it takes commands, `error` with the cause before it ends, `close` when it has
 * ended, `end` when it does not connect again by itself, `message` and `smessage` with a channel and a text, and `moved` when a server of a
 * Cluster has refused or ended subscriptions because it does not have their slots: with the channel, or without one if any may be meant.
 */
export interface RedisConnection {
  /** Its outcome comes as events as well. */
  connect(): Promise<unknown>;
  /** Gives the socket up: no reply on it is believed. @param reconnect whether to connect again; the library may leave that to `end` */
  disconnect(reconnect?: boolean): void;
  /** Rejects with the server's error (its name is `ReplyError`), or with another one when the outcome is unknown. */
  call(command: string, ...args: string[]): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  /** To a channel in a hash slot, on the server of a Cluster. */
  ssubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: string[]) => void): unknown;
  /** The number of the database that its options ask for. Only for a library that goes on in database 0 when the server refuses that. */
  database?(): number;
}

/** Makes a connection, which does nothing before its `connect`. */
export type Connect = () => RedisConnection;

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** The address that a server means, seen from this process. */
export type NatMap = Readonly<Record<string, Address>> | ((key: string) => Address | null | undefined);

/** A Cluster of which one node has answered. */
export interface KnownCluster {
  /** Its answer to `CLUSTER SLOTS`, and the address under which it was asked. */
  readonly slots: unknown;
  readonly asked: Address;
  readonly natMap?: NatMap | undefined;
  /** Connects to any of the nodes. */
  connectTo(address: Address): RedisConnection;
}

/** Finds a node of the Cluster that answers. Rejects when none does. */
export type FindCluster = () => Promise<KnownCluster>;

/** Sends commands, each once. */
export interface CommandSender {
  readonly isUp: boolean;
  /** Why it is not up. */
  readonly cause: unknown;
  /** No command is in flight. */
  readonly isIdle: boolean;
  /** `onFailure` gets the server's error, {@link NotSent}, or another error when the outcome is unknown. */
  send(command: string, args: string[], onReply: (reply: unknown) => void, onFailure: (error: unknown) => void): void;
}

/**
 * The duplicate of a client. A mock makes something else, whose missing parts would fail in an event, where nothing catches that.
 *
 * @throws LockConfigError for a duplicate without one of these methods
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

/** The error for a mock, a pool, a client of an old version, and all else that makes no connections. */
export function notAClient(cause?: unknown, what = 'The client of Redis'): LockConfigError {
  return new LockConfigError(
    `${what} cannot be duplicated. Pass a client of ioredis or redis (version 5 or 6 of either), its address as "url", or its options as "options". In tests, use MemoryLockProvider.`,
    { cause },
  );
}

/** The error for a database that the server does not have. */
export function noDatabase(number: number): LockConfigError {
  return new LockConfigError(
    `Redis has no database ${String(number)}, so the client stays in database 0, where processes with another configuration may have their locks. Give the number of a database that exists: the server has as many as its setting "databases", 16 by default, and a Cluster has 0 alone.`,
  );
}

/** A command that has not left this process. */
export class NotSent extends Error {
  override readonly name = 'NotSent';
}

/** The name that the errors of a server have. Both libraries answer them as errors, also inside of arrays. */
export const REPLY_ERROR = 'ReplyError';

/** Whether the server has answered with this error. Any other one means that the outcome is unknown. */
export function isReplyError(error: unknown): error is Error {
  return error instanceof Error && error.name === REPLY_ERROR;
}

/**
 * After how many ms of silence the system asks whether the other side is still there. A NAT or a load balancer forgets a connection that is
 * idle for 4 to 15 minutes. ioredis 5 leaves it to the system by default, which begins after 2 hours.
 */
export const KEEP_ALIVE = 10_000;

/**
 * How long to wait before the next try, in ms: 50 more with each, as ioredis does by default. Doubled pauses would find a server
 * that was away for half a lease only when the other half is over (measured: after 1.5 s away up to 1.5 s later, with these 0.4 s).
 */
export function backOff(random: Random, times: number): number {
  return Math.min(50 * times, 2_000) * (0.75 + random.fraction() / 4);
}

/** Of 10 s, ioredis' default, the longest part of a failover would be spent on a host that is gone. */
const CONNECT_WITHIN = 2_000;

/** How long a socket may take to open, where a server may be silent for `timeout` ms. */
export function connectTimeoutFor(timeout: number): number {
  return Math.max(timeout, CONNECT_WITHIN);
}

/** ioredis notes the command in its errors, and with it a holder's id or the password, which no log may show. */
export function withoutCommand(error: unknown): unknown {
  if (error instanceof Error) Reflect.deleteProperty(error, 'command');
  return error;
}

export function nameOfAddress({ host, port }: Address): string {
  return `${host}:${port}`;
}

/** The address that a server means by this one, seen from this process. */
export function natted(address: Address, natMap: NatMap | undefined): Address {
  const name = nameOfAddress(address);
  return (typeof natMap === 'function' ? natMap(name) : natMap?.[name]) ?? address;
}
