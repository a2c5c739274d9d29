import type { AcquireRequest } from '../../api/lock-provider.js';
import { wholeMs } from '../../core/toolkit/validity.js';
import type { OperationArguments } from './client/batcher.js';
import type { SeenHolder } from '../shared/seen-holders.js';

/*
 * Encodes operations for the lock script, and parses its replies and messages: see lua/operations.lua.
 */

/**
 * A handoff's provisional lease, in ms, until the receiver confirms it. If the head of the queue is a dead or frozen
 * process, the others wait this long instead of a whole lease.
 */
const PROVISIONAL = 3_000;

/** Acquire codes, with and without queueing. */
const ACQUIRE = {
  exclusive: ['A', 'T'],
  several: ['N', 'M'],
  minHold: ['B', 'U'],
  shared: ['a', 't'],
  limited: ['l', 'm'],
} as const;

const RELEASE = { exclusive: 'R', shared: 'r', limited: 'e' } as const;

/**
 * An acquire that is queued if the lock is not free.
 *
 * @param age how many ms ago the oldest caller arrived
 * @param isSame whether the request's position in the queue is already based on that caller
 */
export function encodeQueueingAcquire(
  request: AcquireRequest,
  callers: number,
  age: number,
  isSame: boolean,
): OperationArguments {
  const place = `${provisionalOf(request)}${termsOf(request)}:${isSame ? '=' : ''}${Math.round(Math.max(0, age) * 1_000)}`;
  const code = ACQUIRE[kindOf(request, callers)][0] + place + callersOf(request, callers);
  return [code, request.id, wholeMs(request.lease)];
}

/**
 * An acquire whose reply is "busy" if the lock is not free.
 *
 * @param leaves whether it also removes the request from the queue
 */
export function encodeTryAcquire(request: AcquireRequest, callers: number, leaves: boolean): OperationArguments {
  const after = callersOf(request, callers);
  const code = ACQUIRE[kindOf(request, callers)][1] + (leaves ? provisionalOf(request) : '') + termsOf(request);
  return [after === '' ? code : `${code}:${after}`, request.id, wholeMs(request.lease)];
}

/** A renewal, or a confirmation if called with the request's `minHold`. */
export function encodeRenewal(request: AcquireRequest, lease: number, minHold = 0): OperationArguments {
  return [`C${minHold > 0 ? wholeMs(minHold) : ''}${termsOf(request)}`, request.id, wholeMs(lease)];
}

/**
 * A release.
 *
 * @param leaves whether it also removes the request from the queue
 */
export function encodeRelease(request: AcquireRequest, keepFor: number, leaves: boolean): OperationArguments {
  const code = RELEASE[request.mode] + (leaves ? provisionalOf(request) : '') + termsOf(request);
  return [code, request.id, wholeMs(keepFor)];
}

function kindOf({ mode, minHold }: AcquireRequest, callers: number): keyof typeof ACQUIRE {
  if (mode !== 'exclusive') return mode;
  if (minHold > 0) return 'minHold';
  return callers > 1 ? 'several' : 'exclusive';
}

/**
 * The provisional lease, followed by `m` if the request has a `minHold`: such a grant can't be passed to another caller
 * in the process.
 */
function provisionalOf({ lease, minHold }: AcquireRequest): string {
  return wholeMs(Math.min(lease, PROVISIONAL)) + (minHold > 0 ? 'm' : '');
}

/** A limited lock's weight and limit. */
function termsOf({ limited }: AcquireRequest): string {
  return limited ? ` ${limited.weight} ${limited.limit}` : '';
}

/** An acquire's last field; empty for a single caller without a `minHold`. */
function callersOf({ minHold }: AcquireRequest, callers: number): string {
  if (minHold > 0) return `:${wholeMs(minHold)}`;
  return callers > 1 ? `::${callers}` : '';
}

/** A reply saying that the lock is held. */
export interface HeldReply {
  /** The last token of the block for its callers. */
  readonly token: bigint;
  /** Whether this call granted the lock, so the full lease remains. */
  readonly isFullLease: boolean;
  /** The remaining lease on the server, in ms. */
  readonly left: number;
}

// Replies are parsed strictly. If a parser threw, the process would crash, and the call's other operations wouldn't get
// a reply.
const HELD = /^(?:(\d{16})|h(\d{16})(-?\d{1,15}))$/;

/** Reads `token` or `h token ms`; `undefined` for any other reply. */
export function readHeld(reply: unknown, lease: number): HeldReply | undefined {
  if (typeof reply !== 'string') return undefined;
  const [, whole, token = whole, left] = HELD.exec(reply) ?? [];
  if (token === undefined) return undefined;
  return { token: BigInt(token), isFullLease: whole !== undefined, left: left === undefined ? lease : Number(left) };
}

/** A reply saying that the request is queued. */
export interface QueuedReply {
  /** The server's time when it queued the request, in µs. */
  readonly serverTime: number;
  /** How many ms until the lock becomes free, unless its holder renews it. */
  readonly freeIn: number;
}

const QUEUED = /^q(\d{16})(\d{1,15})(?: |$)/;

/** Reads `q time ms holder`; `undefined` for any other reply. */
export function readQueued(reply: unknown): QueuedReply | undefined {
  if (typeof reply !== 'string') return undefined;
  const [, serverTime, freeIn] = QUEUED.exec(reply) ?? [];
  return serverTime === undefined ? undefined : { serverTime: Number(serverTime), freeIn: Number(freeIn) };
}

const HOLDER = / (?:\+(\d+)|([0-9a-f]{12})(?: (\d+))?)$/;

/** Whether the reply is `b holder`: a non-queueing acquire found the lock busy. */
export function isBusyReply(reply: unknown): boolean {
  return typeof reply === 'string' && /^b(?: |$)/.test(reply);
}

/** Reads the holder at the end of `q time ms holder` and `b holder`; `undefined` if it is unknown. */
export function readHolder(reply: unknown): SeenHolder | undefined {
  const [found, holders, instance = null, heldFor] = HOLDER.exec(String(reply)) ?? [];
  if (found === undefined) return undefined;
  return { holders: Number(holders ?? 1), instance, heldFor: heldFor === undefined ? null : Number(heldFor) };
}

/** A grant to one of this process's requests, in a reply or a message. */
export interface Notice {
  readonly lock: string;
  readonly holder: string;
  /** The last token of the block for its callers. */
  readonly token: bigint;
  /** The size of the block. */
  readonly tokens: number;
  /** When the lock was granted, in µs on the server's clock. */
  readonly serverTime: number;
  /** The provisional lease in ms. */
  readonly provisional: number;
}

const NOTICE = /^(\d{16})(\d{16})(\d\d)(\d{1,4}):([0-9a-f]{32}) (.+)$/s;

/** Reads `token time tokens provisional ':' holder ' ' lock`; `undefined` for any other text. */
export function readNotice(text: string): Notice | undefined {
  const [, token, serverTime, tokens, provisional, holder, lock] = NOTICE.exec(text) ?? [];
  if (!token || !holder || !lock) return undefined;
  return {
    token: BigInt(token),
    tokens: Number(tokens),
    serverTime: Number(serverTime),
    provisional: Number(provisional),
    holder,
    lock,
  };
}

const FREE_IN = /^k(\d+):([0-9a-f]{32})$/;

/** Reads `k ms ':' holder`: the lock that this request is waiting for becomes free in that many ms. */
export function readFreeIn(text: string): { readonly holder: string; readonly freeIn: number } | undefined {
  const [, freeIn, holder] = FREE_IN.exec(text) ?? [];
  return freeIn && holder ? { freeIn: Number(freeIn), holder } : undefined;
}

/** The value of a lock with one holder: `p` or `w`, token, holder; or `c`, token, time, process, holder. */
const EXCLUSIVE = /^(?:[pw]\d{16}|c\d{29}[0-9a-f]{12})([0-9a-f]{32})$/;
/**
 * The value of a lock with readers. Each reader's record contains `h` and the holder, or `c`, the process, and the
 * holder.
 */
const SHARED = /^s\d{16}$/;
const READER = /^(?:h|c[0-9a-f]{12})([0-9a-f]{32})$/;

/** Reads the id of the request that holds a lock with this value; `undefined` unless there's exactly one. */
export function holderIn(value: unknown): string | undefined {
  return EXCLUSIVE.exec(String(value))?.[1];
}

/**
 * Reads the holders from a lock's value and its records. The list is empty if the lock is retained or limited, or if
 * its value wasn't written by us.
 */
export function readHolders(value: unknown, records: unknown): readonly { id: string; mode: 'exclusive' | 'shared' }[] {
  if (typeof value !== 'string') return [];
  const holder = holderIn(value);
  if (holder !== undefined) return [{ id: holder, mode: 'exclusive' }];
  if (!SHARED.test(value) || !Array.isArray(records)) return [];
  return records.flatMap((record) => {
    const [, id] = READER.exec(String(record)) ?? [];
    return id === undefined ? [] : [{ id, mode: 'shared' as const }];
  });
}
