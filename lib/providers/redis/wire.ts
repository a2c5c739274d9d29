import type { AcquireRequest } from '../../api/lock-provider.js';
import type { OperationArguments } from './client/batcher.js';
import type { SeenHolder } from '../shared/seen-holders.js';

/*
 * The texts that operations, replies and messages of the lock script have: see lua/operations.lua.
 */

/**
 * How long a lock is kept for the receiver of a handoff that has not confirmed it, in ms: while a dead or frozen process
 * is at the head of the queue, the others wait this long, not a lease.
 */
const PROVISIONAL = 3_000;

/** Codes of operations that ask for a lock: with a place in the queue, and without. */
const ACQUIRE = {
  exclusive: ['A', 'T'],
  several: ['N', 'M'],
  minHold: ['B', 'U'],
  shared: ['a', 't'],
  limited: ['l', 'm'],
} as const;

const RELEASE = { exclusive: 'R', shared: 'r', limited: 'e' } as const;

/**
 * An ask that is queued if the lock is not free.
 *
 * @param age how many ms ago the oldest caller came
 * @param isSame whether the request has its place in the queue for that caller
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
 * An ask that is answered as busy if the lock is not free.
 *
 * @param leaves whether it also takes the request out of the queue
 */
export function encodeTryAcquire(request: AcquireRequest, callers: number, leaves: boolean): OperationArguments {
  const after = callersOf(request, callers);
  const code = ACQUIRE[kindOf(request, callers)][1] + (leaves ? provisionalOf(request) : '') + termsOf(request);
  return [after === '' ? code : `${code}:${after}`, request.id, wholeMs(request.lease)];
}

/** A renewal; with the `minHold` of the request, a confirmation. */
export function encodeRenewal(request: AcquireRequest, lease: number, minHold = 0): OperationArguments {
  return [`C${minHold > 0 ? wholeMs(minHold) : ''}${termsOf(request)}`, request.id, wholeMs(lease)];
}

/**
 * A release.
 *
 * @param leaves whether it also takes the request out of the queue
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

/** The provisional lease, and a mark for a request with a `minHold`: no other caller may hold the lock after this one. */
function provisionalOf({ lease, minHold }: AcquireRequest): string {
  return wholeMs(Math.min(lease, PROVISIONAL)) + (minHold > 0 ? 'm' : '');
}

/** The share that a limited lock takes, and the limit. */
function termsOf({ limited }: AcquireRequest): string {
  return limited ? ` ${limited.weight} ${limited.limit}` : '';
}

/** The last field of an ask, for all but one caller without a `minHold`. */
function callersOf({ minHold }: AcquireRequest, callers: number): string {
  if (minHold > 0) return `:${wholeMs(minHold)}`;
  return callers > 1 ? `::${callers}` : '';
}

/** Milliseconds as the script takes them. Rounded up: the server may keep a lock longer than we count on it. */
function wholeMs(duration: number): string {
  return String(Math.ceil(duration));
}

/** A reply that the lock is held. */
export interface HeldReply {
  /** The last of the tokens that its callers may use. */
  readonly token: bigint;
  /** Granted by this very call, for the whole lease asked for. */
  readonly isFullLease: boolean;
  /** Milliseconds left on the server when it answered. */
  readonly left: number;
}

// Replies are read strictly: a reader that throws would end the process, and leave the other operations of the call without an answer.
const HELD = /^(?:(\d{16})|h(\d{16})(-?\d{1,15}))$/;

/** Reads `token` or `h token ms`; `undefined` for any other reply. */
export function readHeld(reply: unknown, lease: number): HeldReply | undefined {
  if (typeof reply !== 'string') return undefined;
  const [, whole, token = whole, left] = HELD.exec(reply) ?? [];
  if (token === undefined) return undefined;
  return { token: BigInt(token), isFullLease: whole !== undefined, left: left === undefined ? lease : Number(left) };
}

/** A reply that the request is queued. */
export interface QueuedReply {
  /** When it was queued, by the server's clock, in µs. */
  readonly serverTime: number;
  /** In how many ms the lock frees itself unless it is renewed. */
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

/** Whether the lock is busy, for an ask without a place in the queue: reads `b holder`. */
export function isBusyReply(reply: unknown): boolean {
  return typeof reply === 'string' && /^b(?: |$)/.test(reply);
}

/** Reads the holder at the end of `q time ms holder` and `b holder`; `undefined` where none is known. */
export function readHolder(reply: unknown): SeenHolder | undefined {
  const [found, holders, instance = null, heldFor] = HOLDER.exec(String(reply)) ?? [];
  if (found === undefined) return undefined;
  return { holders: Number(holders ?? 1), instance, heldFor: heldFor === undefined ? null : Number(heldFor) };
}

/** A grant to a request of this process, in a reply or in a message. */
export interface Notice {
  readonly lock: string;
  readonly holder: string;
  /** The last of the tokens that its callers may use. */
  readonly token: bigint;
  /** How many tokens there are: that one and those before it. */
  readonly tokens: number;
  /** When it was granted, by the server's clock, in µs. */
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

/** Reads `k ms ':' holder`: the lock for which this request waits frees itself in so many ms. */
export function readFreeIn(text: string): { readonly holder: string; readonly freeIn: number } | undefined {
  const [, freeIn, holder] = FREE_IN.exec(text) ?? [];
  return freeIn && holder ? { freeIn: Number(freeIn), holder } : undefined;
}

/** The value of a lock with one holder: `p` and `w` token holder, `m` token time holder, `c` token time process holder. */
const EXCLUSIVE = /^(?:[pw]\d{16}|m\d{29}|c\d{29}[0-9a-f]{12})([0-9a-f]{32})$/;
/** The value of a lock that readers have, who are in records: `h` holder, or `c` process holder. */
const SHARED = /^s\d{16}$/;
const READER = /^(?:h|c[0-9a-f]{12})([0-9a-f]{32})$/;

/** Reads the id of the one request that holds a lock with this value; `undefined` where nobody or several hold it. */
export function holderIn(value: unknown): string | undefined {
  return EXCLUSIVE.exec(String(value))?.[1];
}

/** Reads the holders in the value of a lock and its records: none for a lock that is retained, limited, or written by others. */
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
