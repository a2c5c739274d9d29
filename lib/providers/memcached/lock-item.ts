import { createHash } from 'node:crypto';
import { LockConfigError } from '../../api/errors.js';

/*
 * How a lock is stored as an item: under which name, with which value, and for how long.
 */

// Even with the longest namespace (64 characters), names stay below memcached's 250-byte limit.
const LONGEST_READABLE = 160;
// Every character that the protocol allows, except "#", which marks a hash.
const READABLE = /^[!"$-~]+$/;

/**
 * Returns the item's name: `shop:order:42` if the key is short printable ASCII, otherwise `shop:#` and a SHA-256 hash.
 * Readable keys can't contain `#`, and namespaces can't contain `:`, so names are unique. Never change this format:
 * during a rollout, old and new instances wouldn't see each other's locks.
 */
export function itemKeyOf(namespace: string, key: string): string {
  if (key.length <= LONGEST_READABLE && READABLE.test(key)) return `${namespace}:${key}`;
  // Hash as UTF-16, because UTF-8 encodes all lone surrogates identically.
  return `${namespace}:#${createHash('sha256').update(key, 'utf16le').digest('base64url')}`;
}

/** A hold as stored in an item. Times come from the holder's monotonic clock and mean nothing to other processes. */
export interface Hold {
  readonly holder: string;
  /** When the lease ends. A repeated request reads this value back, so it can't extend the lease. */
  readonly leaseEndsAt: number;
  /** The key stays locked until this time, even if it is released earlier (`minHold`). */
  readonly keptUntil: number;
}

/** The item's value after a release before `minHold` had elapsed. */
// Stored on servers, so never change the text.
export const RETAINED = 'parked';

export function textOf({ holder, leaseEndsAt, keptUntil }: Hold): string {
  return `${holder} ${leaseEndsAt} ${keptUntil}`;
}

/** Returns the holder in a value other than {@link RETAINED}. */
export function holderIn(value: string): string {
  const [holder = ''] = value.split(' ');
  return holder;
}

/** Parses the hold if it belongs to `holder`. */
export function holdOf(value: string, holder: string): Hold | undefined {
  const [owner, leaseEndsAt, keptUntil] = value.split(' ');
  if (owner !== holder) return undefined;
  return { holder, leaseEndsAt: Number(leaseEndsAt), keptUntil: Number(keptUntil) };
}

/**
 * How much earlier than its TTL an item may expire.
 *
 * The server's clock counts whole seconds and is updated once a second, so it may add the TTL to a time that is almost
 * two seconds old. One second would be enough if every update happened at the same fraction of a second, but on 1.6.18
 * the updates drift by 1 ms a second, so the clock skips about one second in a thousand.
 */
const UNTRUSTED_SECONDS = 2;

// memcached interprets larger TTLs as Unix timestamps.
const MOST_SECONDS = 60 * 60 * 24 * 30;

/**
 * Returns the TTL for an item that must live for at least `milliseconds`. The item may live up to three seconds longer.
 */
export function secondsFor(milliseconds: number): number {
  const seconds = Math.ceil(milliseconds / 1_000) + UNTRUSTED_SECONDS;
  if (seconds <= MOST_SECONDS) return seconds;
  throw new LockConfigError(
    `memcached cannot keep a lock for ${milliseconds} ms, because items expire after at most 30 days. Choose a shorter lease or minHold.`,
  );
}
