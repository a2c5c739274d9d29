import type { AcquireRequest, Grant } from '../../api/lock-provider.js';
import { type OperationArguments, type QueueEntry, wholeMs } from './wire.js';

/**
 * How long a lock is kept for the receiver of a handoff that has not confirmed it, in ms: while a dead or frozen process
 * is at the head of the queue, the others wait this long, not a lease.
 */
const PROVISIONAL = 3_000;

/** What asks for a lock: with a place in the queue, and without. */
const LETTERS = { exclusive: ['A', 'T'], minHold: ['B', 'U'], shared: ['a', 't'], limited: ['l', 'm'] } as const;

/**
 * The state of one attempt to acquire one lock. {@link Attempts} changes it.
 *
 * - `asking`: the first ask was not answered. If it fails, the attempt is `unknown`.
 * - `queued`: it is in the server's queue and asks again from time to time, with its ticket.
 * - `unknown`: it was answered that nothing is known. The core asks again with the same id, or releases it.
 * - `settled`: it was answered. Later replies are ignored.
 */
export class Attempt implements QueueEntry {
  readonly holder: string;
  readonly mode: AcquireRequest['mode'];
  readonly lease: number;
  readonly provisional: string;
  state: 'asking' | 'queued' | 'unknown' | 'settled' = 'asking';
  /** Its position in the queue, of a fixed width; empty before it is known. */
  ticket = '';
  /** An ask of it is in flight. */
  isAsking = false;
  /** A confirmation of it is in flight. */
  isConfirming = false;
  /** It was granted, and has to be confirmed before it is answered. */
  isUnconfirmed = false;
  /** No server has seen it: no ask has left this process. */
  isUnsent = false;
  /** Of a limited lock: the smallest limit of the other holders, if that is another one. */
  otherLimit: number | undefined;
  /** It was granted by a message while it asked again, and that ask may still put it into the queue. */
  isQueuedAgain = false;
  #resolve!: (answer: Grant | 'busy') => void;
  #reject!: (error: Error) => void;
  #onAbort: (() => void) | undefined;
  readonly answer = new Promise<Grant | 'busy'>((resolve, reject) => {
    this.#resolve = resolve;
    this.#reject = reject;
  });

  constructor(
    readonly request: AcquireRequest,
    readonly lock: string,
    /** It is or was in the queue, or may be, so the server may name it in a message. */
    public mayBeQueued: boolean,
  ) {
    this.holder = request.holder;
    this.mode = request.mode;
    this.lease = request.lease;
    // The script recognizes by the 0 that no other waiter may hold the lock under this one's name.
    const share = request.limited ? ` ${request.limited.weight} ${request.limited.limit}` : '';
    this.provisional = (request.minHold > 0 ? '0' : '') + wholeMs(Math.min(request.lease, PROVISIONAL)) + share;
    // It must not queue. Asked again after an unknown outcome it must, to find out whether it is in the queue.
    this.#isOnce = request.wait === 0 && !mayBeQueued;
  }

  readonly #isOnce: boolean;

  /** It has been answered, also if the answer was that nothing is known. */
  get isOver(): boolean {
    return this.state === 'settled' || this.state === 'unknown';
  }

  /** The fields of an ask; `undefined` when the attempt is over. */
  readonly encode = (): OperationArguments | undefined => {
    if (this.isOver) return undefined;
    const { holder, lease, minHold, mode } = this.request;
    const once = this.#isOnce;
    const [queueing, immediate] = LETTERS[mode === 'exclusive' && minHold > 0 ? 'minHold' : mode];
    let code = once ? immediate : queueing;
    if (!once || mode === 'limited') code += this.provisional;
    if (minHold > 0) code += `:${this.ticket}:${wholeMs(minHold)}`;
    else if (this.ticket !== '') code += `:${this.ticket}`;
    return [code, holder, wholeMs(lease)];
  };

  /** Calls `listener` when its caller leaves, until it is answered. */
  whenAborted(listener: () => void): void {
    this.#onAbort = listener;
    this.request.signal.addEventListener('abort', listener, { once: true });
  }

  settle(answer: Grant | 'busy'): void {
    this.isQueuedAgain = answer !== 'busy' && this.isAsking && this.state === 'queued';
    this.#end('settled');
    this.#resolve(answer);
  }

  /** Its outcome is unknown; with `sent` false, the server has not seen this ask. */
  fail(error: Error, sent: boolean): void {
    this.isUnsent = !sent && !this.mayBeQueued;
    this.#end('unknown');
    this.#reject(error);
  }

  #end(state: 'settled' | 'unknown'): void {
    this.state = state;
    if (this.#onAbort) this.request.signal.removeEventListener('abort', this.#onAbort);
  }
}
