/*
 * The texts that operations, replies and messages of the lock script have: see lua/operations.lua.
 */

/** The fields of one operation in the script call, besides its lock. */
export type OperationArguments = readonly [code: string, holder: string, ms: string];

/** Milliseconds as the script takes them. Rounded up: the server may keep a lock longer than we count on it. */
export function wholeMs(duration: number): string {
  return String(Math.ceil(duration));
}

/** A reply that the lock is held. */
export interface HeldReply {
  /** The last of the tokens that its callers may use. */
  readonly token: bigint;
  /** Granted by this very call, for the whole lease asked for. */
  readonly isWhole: boolean;
  /** Milliseconds left on the server when it answered. */
  readonly left: number;
}

const TOKEN_DIGITS = 16;

/** Reads `token` or `h token ms`; `undefined` for any other reply. */
export function readHeld(reply: unknown, lease: number): HeldReply | undefined {
  if (typeof reply !== 'string') return undefined;
  const first = reply.charCodeAt(0);
  if (first >= 48 && first <= 57) return { token: BigInt(reply), isWhole: true, left: lease };
  if (first !== 104) return undefined;
  return {
    token: BigInt(reply.slice(1, 1 + TOKEN_DIGITS)),
    isWhole: false,
    left: Number(reply.slice(1 + TOKEN_DIGITS)),
  };
}

/** A reply that the request is queued. */
export interface QueuedReply {
  /** When it was queued, by the server's clock, in µs. */
  readonly serverTime: number;
  /** In how many ms the lock frees itself unless it is renewed. */
  readonly freeIn: number;
}

/** Reads `q time ms`; `undefined` for any other reply. */
export function readQueued(reply: unknown): QueuedReply | undefined {
  if (typeof reply !== 'string' || !reply.startsWith('q')) return undefined;
  return { serverTime: Number(reply.slice(1, 1 + TOKEN_DIGITS)), freeIn: Number(reply.slice(1 + TOKEN_DIGITS)) };
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

const NOTICE = /^(\d{16})(\d{16})(\d\d)(\d+):([0-9a-f]{32}) (.+)$/s;

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
