import type { LockInfo } from '../../../api/lock-info.js';
import type { LimitShare } from '../../../api/lock-mode.js';
import { timeOfToken } from '../../../core/toolkit/fencing-token.js';
import { instanceIdOf, instancesOf } from '../../../core/toolkit/instance-ids.js';
import type { SeenHolder } from '../../shared/seen-holders.js';
import type { LockRow } from '../table/lock-table.js';

/** A hold, or the retention that follows it. */
export interface LeaseHold {
  /** Undefined if retained, that is, released before `minHold` had passed. */
  readonly holder: string | undefined;
  readonly token: bigint;
  /** Undefined for an exclusive hold. */
  readonly limited: LimitShare | undefined;
  /** In µs since 1970. */
  readonly expires: number;
}

/** A row as read, with times from the database's clock. */
export interface Lease {
  /** The row's version, which is at least the last token. */
  readonly version: bigint;
  /** When it was read, in µs since 1970. */
  readonly serverTime: number;
  /** The holds that haven't ended, newest last. If there are none, the row is free. */
  readonly holds: readonly LeaseHold[];
  /** The `holders` column; `null` for an exclusive lock. */
  readonly holders: string | null;
  /** The entries in `holders`, one per holder. */
  readonly pieces: readonly Piece[];
}

/** A limited hold in the `holders` column. */
interface Piece {
  readonly text: string;
  readonly hold: LeaseHold;
  readonly hasEnded: boolean;
  /** Whether the hold was released without being retained. */
  readonly isFreed: boolean;
}

/*
 * Each piece has the form `;<holder>=<end>,<token>,<weight>,<limit>`, with `~` instead of `=` if it is retained. The
 * end is in µs since 1970, which has 16 digits from 2001 to 2286, so it can be compared as text and replaced in place.
 */
const PIECE = /;([^;=~]+)([=~])(\d+),(\d+),(\d+),(\d+)/g;
export const HELD = '=';
export const RETAINED = '~';
export const FREED = '0'.repeat(16);

export function pieceStart(holder: string): string {
  return `;${holder}`;
}

export function leaseOf(row: LockRow): Lease {
  const version = BigInt(row.token);
  const serverTime = Number(row.server_time);
  const expires = Number(row.expires);
  const holders = row.holders?.toString() ?? null;
  const pieces = Array.from((holders ?? '').matchAll(PIECE), ([text, holder, state, end, token, weight, limit]) => ({
    text,
    hold: {
      holder: state === HELD ? holder : undefined,
      token: BigInt(token ?? 0),
      limited: { weight: Number(weight), limit: Number(limit) },
      expires: Number(end),
    },
    hasEnded: Math.min(expires, Number(end)) <= serverTime,
    isFreed: end === FREED,
  }));
  const alone = { holder: row.holder?.toString(), token: version, limited: undefined, expires };
  const limited = pieces.filter(({ hasEnded }) => !hasEnded).map(({ hold }) => hold);
  const exclusive = expires > serverTime ? [alone] : [];
  return { version, serverTime, holds: holders === null ? exclusive : limited, holders, pieces };
}

/**
 * Whether a holder in the row has a grant, rather than just a reserved position. Earlier holders count even if their
 * holds have ended, unless they were freed, because an earlier renewal may still be executed.
 */
export function isGranted({ pieces }: Lease, { token, limited }: LeaseHold): boolean {
  const before = pieces.filter(({ hold, isFreed }) => hold.token < token && !isFreed);
  return admits(
    before.map(({ hold }) => hold),
    limited,
  );
}

/** The holds that fit alongside all earlier ones. The others only reserved a position and will give it up. */
function grantedOf(holds: readonly LeaseHold[]): readonly LeaseHold[] {
  return holds.filter(({ limited }, index) => admits(holds.slice(0, index), limited));
}

/** Whether a lock can be granted alongside these holds: limited if limits are given, otherwise exclusive. */
export function admits(holds: readonly LeaseHold[], terms: LimitShare | undefined): boolean {
  if (holds.length === 0) return true;
  if (!terms || holds.some(({ limited }) => !limited)) return false;
  return usedBy(holds) + terms.weight <= Math.min(smallestLimit(holds), terms.limit);
}

/** The total weight of limited holds. */
function usedBy(holds: readonly LeaseHold[]): number {
  return holds.reduce((used, { limited }) => used + (limited?.weight ?? 0), 0);
}

/** The smallest limit of limited holds; `Infinity` if there are none. */
function smallestLimit(holds: readonly LeaseHold[]): number {
  return holds.reduce((smallest, { limited }) => Math.min(smallest, limited?.limit ?? Infinity), Infinity);
}

/** A key's state for operators, with instance ids; `null` if the key is free. */
export function infoOf(key: string, lease: Lease): LockInfo | null {
  const { serverTime } = lease;
  const holds = grantedOf(lease.holds);
  // If all holds are retained, show the last one.
  const latest = holds.filter(isLive).at(-1) ?? holds.at(-1);
  if (!latest) return null;
  const holders = holds.filter(isLive).length;
  return {
    key,
    state: holders > 0 ? 'held' : 'retained',
    ...(latest.limited ? { mode: 'limited', limit: smallestLimit(holds), used: usedBy(holds) } : { mode: 'exclusive' }),
    holders,
    waiters: null,
    expiresIn: Math.max(...holds.map(({ expires }) => expires - serverTime)) / 1000,
    fencingToken: latest.limited ? null : latest.token,
    instances: instancesOf(holds.flatMap(({ holder }) => holder ?? [])),
    since: timeOfToken(latest.token, serverTime / 1000),
  };
}

/** The holder that blocks other callers; undefined if the row is only retained. */
export function holderIn({ holds, serverTime }: Lease): SeenHolder | undefined {
  const live = grantedOf(holds).filter(isLive);
  const [only] = live;
  if (only?.holder === undefined) return undefined;
  if (only.limited) return { holders: live.length, instance: null, heldFor: null };
  const since = timeOfToken(only.token, serverTime / 1000);
  return { holders: 1, instance: instanceIdOf(only.holder), heldFor: since && serverTime / 1000 - since.getTime() };
}

function isLive({ holder }: LeaseHold): boolean {
  return holder !== undefined;
}
