/** What one operation says in the script call, besides its lock. */
export type OperationArguments = readonly [code: string, holder: string, ms: string];

/** One operation on one lock: a part of a script call. */
export interface Operation {
  readonly lock: string;
  /** Asks for a lock go behind renewals and releases of the same tick: they may need what those free. */
  readonly isAsk: boolean;
  /** The share of one script call that it takes: see {@link Dispatcher}. */
  readonly weight: number;
  /** What to send, or nothing if it has become pointless since it was queued. Called when it is sent. */
  encode(): OperationArguments | undefined;
  /** The script's reply; `sentAt` is when the call was sent, on the monotonic clock. */
  onReply(reply: unknown, sentAt: number): void;
  /** It is unknown whether it was executed. */
  onFailure(error: unknown): void;
}

/** Milliseconds as the script takes them. Rounded up: the server may keep a lock longer than we count on it. */
export function wholeMs(duration: number): string {
  return String(Math.ceil(duration));
}

/** A lock that is held, as a reply tells it. */
export interface HeldReply {
  readonly token: bigint;
  /** Granted by this very call, for the whole lease asked for. */
  readonly isWhole: boolean;
  /** Milliseconds left on the server when it answered. */
  readonly left: number;
}

const TOKEN_DIGITS = 16;

/** Reads `token` or `h token ms`; nothing when the reply does not say that the lock is held. */
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

/** A place in the queue, as a reply tells it. */
export interface QueuedReply {
  readonly ticket: string;
  /** When it was queued, by the server's clock, in µs. */
  readonly serverTime: number;
  /** In how many ms the lock frees itself unless it is renewed. */
  readonly freeIn: number;
  /** It was asked for with its ticket and was not in the queue any more: the server had removed it, or lost its data. */
  readonly wasMissing: boolean;
}

/** Reads `q ticket time ms`; nothing when the reply does not say that the ask is queued. */
export function readQueued(reply: unknown): QueuedReply | undefined {
  if (typeof reply !== 'string' || !/^q/i.test(reply)) return undefined;
  return {
    ticket: reply.slice(1, 1 + TOKEN_DIGITS),
    serverTime: Number(reply.slice(1 + TOKEN_DIGITS, 1 + 2 * TOKEN_DIGITS)),
    freeIn: Number(reply.slice(1 + 2 * TOKEN_DIGITS)),
    wasMissing: reply.startsWith('Q'),
  };
}

/** A grant to waiters of this process, told in a reply or in a message. */
export interface Notice {
  readonly lock: string;
  /** One, or several writers who are to have it one after the other. */
  readonly holders: readonly string[];
  /** That of the first; those of the others follow. */
  readonly token: bigint;
  /** When it was granted, by the server's clock, in µs. */
  readonly serverTime: number;
  /** For how long it was granted unless it is confirmed, in ms, as the queue has it. */
  readonly claim: string;
}

const NOTICE = /^(\d{16})(\d{16})(\d+):([0-9a-f]+(?:,[0-9a-f]+)*) (.+)$/s;

/** Reads `token time claim ':' holder,holder… ' ' lock`; nothing when the text is no notice. */
export function readNotice(text: string): Notice | undefined {
  const [, token, serverTime, claim, holders, lock] = NOTICE.exec(text) ?? [];
  if (!token || !claim || !holders || !lock) return undefined;
  return { token: BigInt(token), serverTime: Number(serverTime), claim, holders: holders.split(','), lock };
}

const RETAINED = /^k(\d+) (.+)$/s;

/** Reads `k ms ' ' lock`: a key that a waiter of this process is the first to wait for is retained for so many ms more. */
export function readRetained(text: string): { readonly lock: string; readonly freeIn: number } | undefined {
  const [, freeIn, lock] = RETAINED.exec(text) ?? [];
  return freeIn && lock ? { freeIn: Number(freeIn), lock } : undefined;
}
