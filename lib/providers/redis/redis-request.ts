import type { AcquireRequest, Grant } from '../../api/lock-provider.js';
import { type OperationArguments, wholeMs } from './wire.js';

/**
 * How long a lock is kept for the receiver of a handoff that has not confirmed it, in ms: while a dead or frozen process
 * is at the head of the queue, the others wait this long, not a lease.
 */
const PROVISIONAL = 3_000;

/** What asks for a lock: with a place in the queue, and without. */
const LETTERS = {
  exclusive: ['A', 'T'],
  several: ['N', 'M'],
  minHold: ['B', 'U'],
  shared: ['a', 't'],
  limited: ['l', 'm'],
} as const;

const RELEASE = { exclusive: 'R', shared: 'r', limited: 'e' } as const;

/**
 * One request for one lock on this Redis, from its first ask to its release. {@link RedisRequests} changes it.
 *
 * - `asking`: its first ask, or the first after a failure, is in flight.
 * - `queued`: it is in the server's queue, and asks again from time to time.
 * - `unknown`: it was answered that nothing is known. The core asks again, or releases it.
 * - `granted`: it was answered with a grant.
 */
export class RedisRequest {
  readonly holder: string;
  state: 'asking' | 'queued' | 'unknown' | 'granted' = 'asking';
  /** An ask of it is in flight. */
  isAsking = false;
  /** When it was asked for last, on the monotonic clock. */
  askedAt = -Infinity;
  /** It asks once more as soon as the ask in flight has queued it: the server may have executed that before what this process learned since. */
  isToRepeat = false;
  /** A confirmation of it is in flight. */
  isConfirming = false;
  /** It was granted, and has to be confirmed before it is answered. */
  isUnconfirmed = false;
  /** Something of it may have reached a server. */
  sent = false;
  /** It may be in the server's queue. */
  mayBeQueued = false;
  /** When the oldest caller came that it asked for last; and that of its place in the queue, as far as the server has answered. */
  askedFor: number | undefined;
  placedFor: number | undefined;
  /** For how many callers it asked last. */
  callers = 1;
  /** The last of the tokens that the server has given to it. */
  token = 0n;
  /** How many they are, one for each caller that may hold the lock by them. */
  tokens = 1;
  readonly #provisional: string;
  /** What it takes of a limited lock, and the limit. */
  readonly #terms: string;
  #resolve!: (answer: Grant | 'busy') => void;
  #reject!: (error: Error) => void;
  #onAbort: (() => void) | undefined;

  constructor(
    readonly request: AcquireRequest,
    readonly lock: string,
  ) {
    const { id, limited, minHold, lease } = request;
    this.holder = id;
    this.#terms = limited ? ` ${limited.weight} ${limited.limit}` : '';
    // The script recognizes by the 0 that no other caller may hold the lock after this one.
    this.#provisional = (minHold > 0 ? '0' : '') + wholeMs(Math.min(lease, PROVISIONAL));
  }

  /** It waits for its answer. */
  get isOpen(): boolean {
    return this.state === 'asking' || this.state === 'queued';
  }

  /** It is asked for, the first time or again after a failure. */
  begin(): Promise<Grant | 'busy'> {
    this.state = 'asking';
    // After a failure: the queue may be another one.
    this.placedFor = undefined;
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** The fields of an ask that is sent at `now`; `undefined` when it is answered. */
  encodeAsk(now: number): OperationArguments | undefined {
    if (!this.isOpen) return undefined;
    const { lease, minHold, mode, wait, since } = this.request;
    const isOnce = wait === 0 && this.state !== 'queued';
    this.callers = mode === 'exclusive' && minHold === 0 ? this.request.callers : 1;
    const kind = this.callers > 1 ? 'several' : mode === 'exclusive' && minHold > 0 ? 'minHold' : mode;
    let code: string = LETTERS[kind][isOnce ? 1 : 0];
    if (!isOnce || this.mayBeQueued) code += this.#provisional;
    code += this.#terms;
    if (!isOnce) code += `:${since === this.placedFor ? '=' : ''}${Math.round(Math.max(0, now - since) * 1_000)}`;
    this.askedFor = since;
    if (minHold > 0) code += `${isOnce ? ':' : ''}:${wholeMs(minHold)}`;
    else if (kind === 'several') code += `${isOnce ? ':' : ''}::${this.callers}`;
    this.mayBeQueued ||= !isOnce;
    this.sent = true;
    return [code, this.holder, wholeMs(lease)];
  }

  /** The fields of a confirmation; `undefined` when it is answered. */
  readonly encodeConfirmation = (): OperationArguments | undefined =>
    this.isOpen ? this.encodeRenewal(this.request.lease, this.request.minHold) : undefined;

  encodeRenewal(lease: number, minHold: number): OperationArguments {
    return [`C${minHold > 0 ? wholeMs(minHold) : ''}${this.#terms}`, this.holder, wholeMs(lease)];
  }

  /** The fields of its release, which also takes it out of the queue if it may be there. */
  encodeRelease(keepFor: number): OperationArguments {
    const kind = RELEASE[this.request.mode];
    return [kind + (this.mayBeQueued ? this.#provisional : '') + this.#terms, this.holder, wholeMs(keepFor)];
  }

  /** Calls `listener` when its caller has left, until it is answered. */
  whenAborted(listener: () => void): void {
    if (this.#onAbort) return;
    this.#onAbort = listener;
    this.request.signal.addEventListener('abort', listener, { once: true });
  }

  settle(answer: Grant | 'busy'): void {
    this.#end(answer === 'busy' ? 'unknown' : 'granted');
    this.#resolve(answer);
  }

  fail(error: Error): void {
    this.#end('unknown');
    this.#reject(error);
  }

  #end(state: 'granted' | 'unknown'): void {
    this.state = state;
    if (this.#onAbort) this.request.signal.removeEventListener('abort', this.#onAbort);
    this.#onAbort = undefined;
  }
}

/** What is known of a request here, if it was asked for. */
export function requestOf({ state }: AcquireRequest): RedisRequest | undefined {
  return state instanceof RedisRequest ? state : undefined;
}
