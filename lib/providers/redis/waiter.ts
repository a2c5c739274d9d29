import { type AcquireRequest, type Grant, type ProviderEvent } from '../../api/lock-provider.js';
import { type Clock } from '../../api/clock.js';
import { validUntil } from '../../core/toolkit/validity.js';
import type { Cohort } from './cohort.js';
import { NotSent } from './command-connection.js';
import { HEAVY, REPEATED } from './dispatcher.js';
import {
  type Notice,
  type Operation,
  type OperationArguments,
  type QueuedReply,
  readHeld,
  readQueued,
  wholeMs,
} from './operation.js';
import type { ServerClock } from './server-clock.js';

/** What a waiter needs around it. */
export interface WaiterSurroundings {
  readonly clock: Clock;
  /** Every grant must be confirmed before it is answered. */
  readonly confirmsAll: boolean;
  add(operation: Operation): void;
  confirm(operation: Operation, lease: number): void;
  clockOf(lock: string): ServerClock | undefined;
  emit(event: ProviderEvent): void;
  /** It is in the queue, also after it was asked for again. */
  onQueued(waiter: Waiter, reply: QueuedReply): void;
  /** It does not wait any more. */
  onSettled(waiter: Waiter): void;
  /** Its caller has left while it was queued; true when that can be answered with certainty. */
  onAbort(waiter: Waiter): void;
  /** The cohort from which it was to have the lock does not have it any more. */
  onCohortOver(waiter: Waiter): void;
  /** It found a grant by asking of which a message should have told. */
  onMessageMissed(lock: string): void;
  /** It was granted as if nobody was queued, so it was not in the queue any more, and others may be missing as well. */
  onQueueLost(lock: string): void;
  unavailable(key: string, cause: unknown, sent: boolean): Error;
}

/**
 * How long a handed-over lock is kept for a receiver that has not confirmed it, in ms: while a dead or frozen process
 * is at the head, the others wait this long, not a lease.
 */
const CLAIM = 3_000;

/**
 * One attempt to acquire one lock: it asks, waits in the server's queue, and turns what it is granted into an answer.
 *
 * - `asking`: the first ask was not answered. If it fails, the outcome is `unknown`, which is the engine's to resolve.
 * - `queued`: it stands in the queue and asks again from time to time, with its ticket.
 * - `settled`: it was answered. Whatever comes later is not looked at.
 *
 * A grant that may have run out on its way, or whose first lease is only a claim that nobody would renew, is confirmed
 * before it is answered; if the server has taken it back meanwhile, the attempt goes on waiting with its old ticket.
 */
export class Waiter implements Operation {
  readonly isAsk = true;
  readonly claim: string;
  /** It must not queue. Asked again after an unknown outcome it must, to find out whether it stands in the queue. */
  readonly #once: boolean;
  state: 'asking' | 'queued' | 'unknown' | 'settled' = 'asking';
  /** It was granted by a message while it asked again, and that ask may still put it into the queue. */
  isStray = false;
  /** Where it has the lock, or is to have it, together with others of this process. */
  cohort: Cohort | undefined;
  /** It was answered with a grant. */
  isGranted = false;
  /** No server knows of it: no ask has left this process. */
  isUnsent = false;
  /** It was granted, and has to be confirmed before it is answered. */
  isUnconfirmed = false;
  #ticket = '';
  #asked = false;
  #confirming = false;
  /** Its token as a member of a cohort, of which the server knows only the first. */
  #memberToken: bigint | undefined;
  #resolve!: (answer: Grant | 'busy') => void;
  #reject!: (error: Error) => void;
  readonly answer = new Promise<Grant | 'busy'>((resolve, reject) => {
    this.#resolve = resolve;
    this.#reject = reject;
  });
  #listening = false;

  constructor(
    readonly request: AcquireRequest,
    readonly lock: string,
    private readonly around: WaiterSurroundings,
    /** It is or was in the queue, or may be, so that the server may name it in a message. */
    public mayBeQueued: boolean,
  ) {
    this.#once = request.wait === 0 && !mayBeQueued;
    // The server tells by the 0 that no other waiter may have the lock under this one's name.
    this.claim = (request.minHold > 0 ? '0' : '') + wholeMs(Math.min(request.lease, CLAIM));
  }

  /** Its place in the queue, of a fixed width; empty before it is known. */
  get ticket(): string {
    return this.#ticket;
  }

  get weight(): number {
    return this.#ticket === '' ? HEAVY : REPEATED;
  }

  /** It has been answered, also if the answer was that nothing is known. */
  get isOver(): boolean {
    return this.state === 'settled' || this.state === 'unknown';
  }

  /** Asks, unless a question is under way: two at a time could be granted twice. */
  ask(): void {
    if (this.#asked || this.#confirming || this.isOver) return;
    // The server knows the lock that it has under another name.
    if (this.#memberToken !== undefined) this.#confirm();
    else {
      this.#asked = true;
      this.around.add(this);
    }
  }

  encode(): OperationArguments | undefined {
    if (this.isOver) return undefined;
    const { holder, lease, minHold, mode } = this.request;
    const once = this.#once;
    let code = mode === 'shared' ? (once ? 't' : 'a') : minHold > 0 ? (once ? 'U' : 'B') : once ? 'T' : 'A';
    if (!once) code += this.claim;
    if (minHold > 0) code += `:${this.#ticket}:${wholeMs(minHold)}`;
    else if (this.#ticket !== '') code += `:${this.#ticket}`;
    return [code, holder, wholeMs(lease)];
  }

  onReply(reply: unknown, sentAt: number): void {
    this.#asked = false;
    if (this.isOver) return;
    const held = readHeld(reply, this.request.lease);
    if (held) {
      if (!held.isWhole) {
        this.mayBeQueued = true;
        if (this.state === 'queued') this.around.onMessageMissed(this.lock);
      } else if (this.state === 'queued') this.around.onQueueLost(this.lock);
      // Granted by itself: whatever was handed over before is over, and its tokens are overtaken.
      this.leaveCohort();
      this.#granted(held.token, validUntil(sentAt, held.left), held.isWhole);
      return;
    }
    const queued = readQueued(reply);
    if (queued) {
      this.around.clockOf(this.lock)?.observe(sentAt, queued.serverTime);
      this.#ticket = queued.ticket;
      this.mayBeQueued = true;
      this.isUnconfirmed = false;
      this.around.onQueued(this, queued);
      if (this.state !== 'queued') this.#queue();
    } else if (reply === 'b') this.settle('busy');
    else this.onFailure(new Error('The server answered something that is not an answer of the lock script.'));
  }

  onFailure(error: unknown): void {
    this.#asked = false;
    // A queued waiter keeps its place, and asks again when the server is back.
    if (this.state === 'asking') this.fail(error, !(error instanceof NotSent));
  }

  /** The lock was handed over to this waiter, in a reply to a call sent at `sentAt` or (without it) in a message. */
  onNotice(notice: Notice, sentAt: number | undefined): void {
    if (this.isOver) return;
    this.mayBeQueued = true;
    const grantedAt = sentAt ?? this.around.clockOf(this.lock)?.earliest(notice.serverTime, this.around.clock.now());
    this.#granted(
      notice.token,
      grantedAt === undefined ? -Infinity : validUntil(grantedAt, Number(notice.claim)),
      false,
    );
  }

  /** A member of its cohort has passed the lock on to it. */
  onTurn(token: bigint): void {
    const now = this.around.clock.now();
    this.#memberToken = token;
    const until = Math.min(this.cohort?.validUntil ?? 0, validUntil(now, this.request.lease));
    this.#granted(token, until, false);
  }

  settle(answer: Grant | 'busy'): void {
    this.isGranted = answer !== 'busy';
    this.isStray = this.isGranted && this.#asked && this.state === 'queued';
    this.#end('settled');
    this.#resolve(answer);
  }

  /** Its outcome is unknown; with `sent` false, the server does not know of it. */
  fail(cause: unknown, sent = true): void {
    this.isUnsent = !sent && !this.mayBeQueued;
    this.#end('unknown');
    this.#reject(this.around.unavailable(this.request.key, cause, sent));
  }

  #queue(): void {
    this.state = 'queued';
    // Its time is over, or it asked only to find out what had become of an ask without an answer.
    if (this.request.wait === 0) {
      this.#onAbort();
      return;
    }
    this.around.emit({ type: 'waiting', holder: this.request.holder });
    const { signal } = this.request;
    if (signal.aborted) this.#onAbort();
    else {
      this.#listening = true;
      signal.addEventListener('abort', this.#onAbort, { once: true });
    }
  }

  readonly #onAbort = (): void => {
    this.around.onAbort(this);
  };

  #granted(token: bigint, until: number, whole: boolean): void {
    const { renew, minHold } = this.request;
    const isClaimTooLittle = !whole && (!renew || minHold > 0);
    if (this.around.confirmsAll || isClaimTooLittle || until <= this.around.clock.now()) this.#confirm();
    else this.#hold(token, until);
  }

  /** The server has told something else of it than that it has, or will have, the lock with its cohort. */
  leaveCohort(): void {
    if (!this.cohort) return;
    this.cohort.dissolve();
    this.around.onCohortOver(this);
    this.cohort = undefined;
    this.#memberToken = undefined;
  }

  #hold(fencingToken: bigint, until: number): void {
    const { key, holder, mode, lease } = this.request;
    if (this.cohort?.first === this) this.cohort.begun(until);
    this.settle({ key, holder, mode, fencingToken, validUntil: until, lease });
  }

  #confirm(): void {
    this.isUnconfirmed = true;
    if (this.#confirming) return;
    this.#confirming = true;
    const { lease } = this.request;
    const prolongation = this.cohort?.prolonging(lease, this.around.clock.now()) ?? 0;
    this.around.confirm(new Confirmation(this, prolongation), lease);
  }

  /** Prolongs the hold to its whole lease, if the server still has it so. */
  onConfirmed(reply: unknown, sentAt: number, prolongation: number): void {
    this.#confirming = false;
    if (this.isOver) return;
    const held = readHeld(reply, this.request.lease);
    const { cohort } = this;
    // Another token: the claim had run out, and its name was served again. The tokens of the others are overtaken.
    const isOvertaken = cohort !== undefined && held?.token !== cohort.token;
    if (isOvertaken) this.leaveCohort();
    if (!held || (isOvertaken && cohort.first !== this)) this.ask();
    else {
      const until = validUntil(sentAt, held.left);
      this.cohort?.prolonged(prolongation, until);
      if (until > this.around.clock.now()) this.#hold(this.#memberToken ?? held.token, until);
      else this.#confirm();
    }
  }

  onUnconfirmed(error: unknown): void {
    this.#confirming = false;
    if (this.isOver) return;
    // With `waitReplicas` it is granted and may not be used: not busy, whatever becomes of its wait.
    if (this.state === 'asking' || this.around.confirmsAll) this.fail(error);
  }

  #end(state: 'settled' | 'unknown'): void {
    this.state = state;
    if (this.#listening) this.request.signal.removeEventListener('abort', this.#onAbort);
    this.around.onSettled(this);
  }
}

/** Asks whether a waiter's grant still stands, and prolongs it to the whole lease. */
class Confirmation implements Operation {
  readonly isAsk = false;
  readonly weight = HEAVY;
  readonly lock: string;

  constructor(
    private readonly waiter: Waiter,
    private readonly prolongation: number,
  ) {
    this.lock = waiter.lock;
  }

  encode(): OperationArguments | undefined {
    if (this.waiter.isOver) return undefined;
    const { holder, lease, minHold } = this.waiter.request;
    return [minHold > 0 ? `C${wholeMs(minHold)}` : 'C', this.waiter.cohort?.name ?? holder, wholeMs(lease)];
  }

  onReply(reply: unknown, sentAt: number): void {
    this.waiter.onConfirmed(reply, sentAt, this.prolongation);
  }

  onFailure(error: unknown): void {
    this.waiter.onUnconfirmed(error);
  }
}
