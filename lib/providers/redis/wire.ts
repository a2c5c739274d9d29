import type { LockMode } from '../../api/lock-options.js';

/*
 * The texts that operations, replies and messages of the lock script have: see lua/operations.ts.
 */

/** The fields of one operation in the script call, besides its lock. */
export type OperationArguments = readonly [code: string, holder: string, ms: string];

/** Milliseconds as the script takes them. Rounded up: the server may keep a lock longer than we count on it. */
export function wholeMs(duration: number): string {
  return String(Math.ceil(duration));
}

/** Ids that are removed from the queue of a lock with a release, because they may be in it. */
export interface QueueEntry {
  readonly lock: string;
  readonly mode: LockMode;
  /** One id, or several of one cohort that are separated by ','. */
  readonly holder: string;
  /** The provisional lease of the attempt, and in mode limited its weight and limit, as the queue has them. */
  readonly provisional: string;
  /** How long they may hold the lock, in ms. */
  readonly lease: number;
}

const RELEASE = { exclusive: 'R', shared: 'r', limited: 'e' } as const;

/** The fields of a release; without a provisional lease the queue stays as it is. */
export function releaseArguments(
  { mode, holder }: Pick<QueueEntry, 'mode' | 'holder'>,
  provisional: string,
  keepFor: number,
): OperationArguments {
  return [RELEASE[mode] + provisional, holder, wholeMs(keepFor)];
}

/** A reply that the lock is held. */
export interface HeldReply {
  readonly token: bigint;
  /** Granted by this very call, for the whole lease asked for. */
  readonly isWhole: boolean;
  /** Milliseconds left on the server when it answered. */
  readonly left: number;
  /** Of a limited lock: the smallest limit of the other holders, if that is another one. */
  readonly otherLimit?: number | undefined;
}

const TOKEN_DIGITS = 16;

/** Reads `token`, `token ' ' limit` or `h token ms`; `undefined` for any other reply. */
export function readHeld(reply: unknown, lease: number): HeldReply | undefined {
  if (typeof reply !== 'string') return undefined;
  const first = reply.charCodeAt(0);
  if (first >= 48 && first <= 57) {
    if (reply.length === TOKEN_DIGITS) return { token: BigInt(reply), isWhole: true, left: lease };
    const [token = '', limit] = reply.split(' ');
    return { token: BigInt(token), isWhole: true, left: lease, otherLimit: Number(limit) };
  }
  if (first !== 104) return undefined;
  return {
    token: BigInt(reply.slice(1, 1 + TOKEN_DIGITS)),
    isWhole: false,
    left: Number(reply.slice(1 + TOKEN_DIGITS)),
  };
}

/** A reply that the attempt is queued. */
export interface QueuedReply {
  readonly ticket: string;
  /** When it was queued, by the server's clock, in µs. */
  readonly serverTime: number;
  /** In how many ms the lock frees itself unless it is renewed. */
  readonly freeIn: number;
  /** It asked with its ticket and was not in the queue any more: the server had removed it, or lost its data. */
  readonly wasMissing: boolean;
  /** Of a limited lock: the smallest limit of the holders, if that is another one. */
  readonly otherLimit: number | undefined;
}

/** Reads `q ticket time ms` or `q ticket time ms ' ' limit`; `undefined` for any other reply. */
export function readQueued(reply: unknown): QueuedReply | undefined {
  if (typeof reply !== 'string' || !/^q/i.test(reply)) return undefined;
  const [freeIn, limit] = reply.slice(1 + 2 * TOKEN_DIGITS).split(' ');
  return {
    ticket: reply.slice(1, 1 + TOKEN_DIGITS),
    serverTime: Number(reply.slice(1 + TOKEN_DIGITS, 1 + 2 * TOKEN_DIGITS)),
    freeIn: Number(freeIn),
    wasMissing: reply.startsWith('Q'),
    otherLimit: limit === undefined ? undefined : Number(limit),
  };
}

/** A grant to waiters of this process, in a reply or in a message. */
export interface Notice {
  readonly lock: string;
  /** One, or several writers who are to hold it one after the other. */
  readonly holders: readonly string[];
  /** The token of the first holder; those of the others follow. */
  readonly token: bigint;
  /** When it was granted, by the server's clock, in µs. */
  readonly serverTime: number;
  /** The provisional lease in ms, as the queue has it. */
  readonly provisional: string;
  /** Of a limited lock: the smallest limit of the other holders, if that is another one. */
  readonly otherLimit: number | undefined;
}

const NOTICE = /^(\d{16})(\d{16})(\d+)(?: (\d+))?:([0-9a-f]+(?:,[0-9a-f]+)*) (.+)$/s;

/** Reads `token time provisional ' ' other limit ':' holder,holder… ' ' lock`; `undefined` for any other text. */
export function readNotice(text: string): Notice | undefined {
  const [, token, serverTime, provisional, limit, holders, lock] = NOTICE.exec(text) ?? [];
  if (!token || !provisional || !holders || !lock) return undefined;
  return {
    token: BigInt(token),
    serverTime: Number(serverTime),
    provisional,
    otherLimit: limit === undefined ? undefined : Number(limit),
    holders: holders.split(','),
    lock,
  };
}

const RETAINED = /^k(\d+) (.+)$/s;

/** Reads `k ms ' ' lock`: a key whose first waiter is of this process is retained for so many ms more. */
export function readRetained(text: string): { readonly lock: string; readonly freeIn: number } | undefined {
  const [, freeIn, lock] = RETAINED.exec(text) ?? [];
  return freeIn && lock ? { freeIn: Number(freeIn), lock } : undefined;
}
