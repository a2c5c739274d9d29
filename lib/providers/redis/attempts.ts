import { type AcquireRequest, type BackendContext, type Grant } from '../../api/lock-provider.js';
import { HolderTable } from '../../core/toolkit/holder-table.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { Attempt } from './attempt.js';
import { HEAVY, type Operation, REPEATED } from './batcher.js';
import { NotSent } from './client/redis-client.js';
import { Cohort, type Cohorts } from './cohort.js';
import type { PendingLeaves } from './pending-leaves.js';
import type { Servers } from './servers.js';
import { unavailable } from './unavailable.js';
import { PendingAttempts } from './pending-attempts.js';
import { type Notice, readHeld, readNotice, readQueued, readRetained, type QueueEntry, wholeMs } from './wire.js';

/**
 * All attempts of this process, from the first ask to the grant: they ask, wait in the server's queue, and turn what they are granted
 * into an answer.
 *
 * A grant that may have run out on its way, or whose provisional lease would not be renewed, is confirmed before it
 * is answered. If the server has taken it back meanwhile, the attempt keeps waiting with its old ticket.
 */
export class Attempts {
  readonly #pending: PendingAttempts;
  /** Granted after they were queued, until their release: the server may still name them in a message. */
  readonly #granted = new HolderTable<Attempt>();

  constructor(
    private readonly context: BackendContext,
    private readonly servers: Servers,
    private readonly cohorts: Cohorts,
    private readonly leaves: PendingLeaves,
    /** Every grant must be confirmed before it is answered. */
    private readonly confirmsAll: boolean,
  ) {
    this.#pending = new PendingAttempts(context.clock, (attempt) => {
      this.#ask(attempt);
    });
  }

  acquire(request: AcquireRequest, lock: string): Promise<Grant | 'busy'> {
    const known = this.#pending.attempts.get(request.holder);
    // It was granted, and the core could not use that. Nothing of it is certain any more.
    this.#abandonCohort(request.holder);
    const attempt = new Attempt(request, lock, known !== undefined && !known.isUnsent);
    // Before it is sent: a message about the grant may overtake the reply.
    this.#pending.attempts.set(request.holder, attempt);
    this.servers.batcherOf(lock).add(this.#question(attempt));
    return attempt.answer;
  }

  /**
   * Hands the lock that this holder releases to the next of its cohort. Answers whether that was done; otherwise the lock is
   * released on the server.
   */
  handOff(holder: string): boolean {
    const cohort = this.cohorts.of(holder);
    // An attempt whose caller has left before the lock was confirmed hands nothing on.
    if (cohort?.current !== holder || this.#pending.attempts.get(holder)) return false;
    if (!this.servers.batcherOf(cohort.lock).isReachable) return false;
    const now = this.context.clock.now();
    const next = cohort.next(now, (member) => this.#pending.attempts.get(member)?.isOver === false);
    const attempt = next && this.#pending.attempts.get(next.holder);
    if (!attempt) return false;
    // The release of the last one takes it out of the queue.
    this.#granted.delete(holder);
    this.#grant(attempt, next.token, Math.min(cohort.validity.until, validUntil(now, attempt.lease)), false);
    return true;
  }

  /**
   * The attempt is over. Answers the ids that have to leave the queue with its release, beginning with the one under which the server
   * has the lock; `undefined` if it is in no queue, and `'unsent'` if no server has seen it.
   */
  end(holder: string): QueueEntry | 'unsent' | undefined {
    const granted = this.#granted.get(holder);
    this.#granted.delete(holder);
    const attempt = this.#pending.attempts.get(holder);
    if (attempt) {
      if (!attempt.isOver) attempt.settle('busy');
      this.#pending.attempts.delete(holder);
      if (attempt.isUnsent) return 'unsent';
    }
    return this.cohorts.end(holder)?.entryWithout() ?? attempt ?? (granted?.isQueuedAgain ? granted : undefined);
  }

  onNotice(text: string, sentAt: number | undefined): void {
    const retained = readRetained(text);
    if (retained) {
      this.#pending.retained(retained.lock, retained.freeIn);
      return;
    }
    const notice = readNotice(text);
    // Any other text on our channel is not for us.
    if (!notice) return;
    for (const holder of notice.holders) if (!this.#isAlive(holder)) this.#leaveUnknown(holder, notice);
    const attempt = this.#pending.attempts.get(notice.holders[0] ?? '');
    // Answered already: a message may come after the ask that found the grant.
    if (!attempt || attempt.isOver) return;
    this.#leaveCohort(attempt.holder);
    if (notice.holders.length > 1) this.#formCohort(attempt, notice);
    attempt.mayBeQueued = true;
    attempt.otherLimit = notice.otherLimit;
    const { clock } = this.context;
    const grantedAt = sentAt ?? this.servers.clockOf(attempt.lock)?.earliest(notice.serverTime, clock.now());
    const until = grantedAt === undefined ? -Infinity : validUntil(grantedAt, Number(notice.provisional));
    this.#grant(attempt, notice.token, until, false);
  }

  /** Messages may have been missed. */
  askAgain(): void {
    this.#pending.askAgain();
  }

  /** The backend closes: no caller is left waiting. */
  close(cause: unknown): void {
    for (const attempt of this.#pending.close()) this.#fail(attempt, cause);
    this.#granted.clear();
  }

  /** Asks, unless a question of the attempt is in flight: two at a time could be granted twice. */
  #ask(attempt: Attempt): void {
    if (attempt.isAsking || attempt.isConfirming || attempt.isOver) return;
    // The server has the lock under the name of another member.
    if (this.cohorts.of(attempt.holder)?.memberToken(attempt.holder) !== undefined) {
      this.#confirm(attempt);
    } else this.servers.batcherOf(attempt.lock).add(this.#question(attempt));
  }

  /** An ask of the attempt, which is about to be sent. */
  #question(attempt: Attempt): Operation {
    attempt.isAsking = true;
    return {
      lock: attempt.lock,
      isAcquire: true,
      weight: attempt.ticket === '' ? HEAVY : REPEATED,
      encode: attempt.encode,
      onReply: (reply, sentAt) => {
        attempt.isAsking = false;
        if (!attempt.isOver) this.#onReply(attempt, reply, sentAt);
      },
      onFailure: (error) => {
        attempt.isAsking = false;
        this.#onUnanswered(attempt, error);
      },
    };
  }

  #onReply(attempt: Attempt, reply: unknown, sentAt: number): void {
    const { lock, holder } = attempt;
    const held = readHeld(reply, attempt.lease);
    if (held) {
      const wasQueued = attempt.state === 'queued';
      if (held.isWhole) attempt.otherLimit = held.otherLimit;
      else attempt.mayBeQueued = true;
      // Granted by itself: any earlier handoff to it is over, and its tokens are overtaken.
      this.#leaveCohort(holder);
      this.#grant(attempt, held.token, validUntil(sentAt, held.left), held.isWhole);
      // A message should have announced the grant. Or it was granted as if nobody was queued, so it was not in the queue any more. In
      // both cases others may wait in vain as well.
      if (wasQueued && !held.isWhole) this.servers.probe(lock);
      if (wasQueued) this.#pending.recall(lock);
      return;
    }
    const queued = readQueued(reply);
    if (queued) {
      this.servers.clockOf(lock)?.observe(sentAt, queued.serverTime);
      attempt.ticket = queued.ticket;
      attempt.mayBeQueued = true;
      attempt.isUnconfirmed = false;
      attempt.otherLimit = queued.otherLimit;
      // The others rely on its asks alone, so they may be missing as well.
      if (queued.wasMissing) this.#pending.recall(lock);
      this.#pending.queued(attempt, queued.freeIn);
      if (attempt.state !== 'queued') this.#onQueued(attempt);
    } else if (reply === 'b') {
      this.#pending.attempts.delete(holder);
      attempt.settle('busy');
    } else
      this.#onUnanswered(attempt, new Error('The server answered something that is not an answer of the lock script.'));
  }

  #onUnanswered(attempt: Attempt, error: unknown): void {
    // A queued waiter keeps its position, and asks again when the server is back.
    if (attempt.state === 'asking') this.#fail(attempt, error, !(error instanceof NotSent));
  }

  #onQueued(attempt: Attempt): void {
    attempt.state = 'queued';
    const { wait, signal } = attempt.request;
    // Its time is over, or it asked only to find out the outcome of an ask without an answer.
    if (wait === 0) {
      this.#onAbort(attempt);
      return;
    }
    const { holder, otherLimit } = attempt;
    this.context.emit({ type: 'waiting', holder, otherLimit });
    if (signal.aborted) this.#onAbort(attempt);
    else {
      attempt.whenAborted(() => {
        this.#onAbort(attempt);
      });
    }
  }

  /** Its caller has left while it was queued. */
  #onAbort(attempt: Attempt): void {
    this.#abandonCohort(attempt.holder);
    this.#pending.attempts.delete(attempt.holder);
    const batcher = this.servers.batcherOf(attempt.lock);
    if (batcher.isReachable) attempt.settle('busy');
    else this.#fail(attempt, new Error('The connection was lost while it waited.'));
    this.leaves.add(attempt, batcher);
  }

  #grant(attempt: Attempt, token: bigint, until: number, isWhole: boolean): void {
    const { renew, minHold } = attempt.request;
    const isTooShort = !isWhole && (!renew || minHold > 0);
    if (this.confirmsAll || isTooShort || until <= this.context.clock.now()) this.#confirm(attempt);
    else this.#hold(attempt, token, until);
  }

  /** Renews the hold to its whole lease before it is answered, if the server still has it. */
  #confirm(attempt: Attempt): void {
    attempt.isUnconfirmed = true;
    if (attempt.isConfirming) return;
    attempt.isConfirming = true;
    const { lock, holder, lease } = attempt;
    const { minHold } = attempt.request;
    const renewal = this.cohorts.of(holder)?.validity.renewing(lease, this.context.clock.now()) ?? 0;
    this.servers.confirmerOf(lock, lease).add({
      lock,
      isAcquire: false,
      weight: HEAVY,
      encode: () => {
        if (attempt.isOver) return undefined;
        return [minHold > 0 ? `C${wholeMs(minHold)}` : 'C', this.cohorts.of(holder)?.name ?? holder, wholeMs(lease)];
      },
      onReply: (reply, sentAt) => {
        attempt.isConfirming = false;
        if (!attempt.isOver) this.#onConfirmed(attempt, reply, sentAt, renewal);
      },
      onFailure: (error) => {
        attempt.isConfirming = false;
        // With `waitReplicas` it is granted and may not be used: not busy, even if its wait ends.
        if (!attempt.isOver && (attempt.state === 'asking' || this.confirmsAll)) this.#fail(attempt, error);
      },
    });
  }

  #onConfirmed(attempt: Attempt, reply: unknown, sentAt: number, renewal: number): void {
    const { holder } = attempt;
    const held = readHeld(reply, attempt.lease);
    const cohort = this.cohorts.of(holder);
    // Another token: the provisional lease had run out, and its name was granted again. The tokens of the others are overtaken.
    const isOvertaken = cohort !== undefined && held?.token !== cohort.token;
    if (isOvertaken) this.#leaveCohort(holder);
    if (!held || (isOvertaken && cohort.name !== holder)) {
      this.#ask(attempt);
      return;
    }
    const until = validUntil(sentAt, held.left);
    if (!isOvertaken) cohort?.validity.acknowledged(renewal, until);
    if (until <= this.context.clock.now()) this.#confirm(attempt);
    else this.#hold(attempt, (isOvertaken ? undefined : cohort?.memberToken(holder)) ?? held.token, until);
  }

  #hold(attempt: Attempt, fencingToken: bigint, until: number): void {
    const { holder, mode, lease, otherLimit } = attempt;
    const cohort = this.cohorts.of(holder);
    if (cohort?.name === holder) cohort.validity.begin(until);
    this.#pending.attempts.delete(holder);
    if (attempt.mayBeQueued) this.#granted.set(holder, attempt);
    const { key } = attempt.request;
    attempt.settle({ key, holder, mode, fencingToken, validUntil: until, lease, otherLimit });
  }

  /** The outcome is unknown; with `sent` false, the server has not seen this ask. */
  #fail(attempt: Attempt, cause: unknown, sent = true): void {
    attempt.fail(unavailable(this.context.name, attempt.request.key, cause, sent), sent);
  }

  #formCohort(first: Attempt, { holders, token }: Notice): void {
    const waiting: { holder: string; token: bigint }[] = [];
    holders.forEach((holder, index) => {
      if (index === 0 || this.#pending.attempts.get(holder)?.isOver !== false) return;
      this.#leaveCohort(holder);
      waiting.push({ holder, token: token + BigInt(index) });
    });
    this.cohorts.add(new Cohort(first, token, waiting));
  }

  /** The server has reported something else of this holder than that it has, or will have, the lock with its cohort. */
  #leaveCohort(holder: string): void {
    const cohort = this.cohorts.of(holder);
    if (!cohort) return;
    this.cohorts.dissolve(cohort);
    this.#abandonCohort(holder);
  }

  /** The lock that this holder has with its cohort is not certain any more: the other members that had it leave the queue. */
  #abandonCohort(holder: string): void {
    const cohort = this.cohorts.end(holder);
    const entry = cohort?.entryWithout(holder);
    if (entry) this.leaves.add(entry, this.servers.batcherOf(entry.lock));
  }

  /** Whether an attempt of this process waits for, confirms or holds what it was granted. */
  #isAlive(holder: string): boolean {
    return (
      this.#pending.attempts.get(holder) !== undefined ||
      this.#granted.get(holder) !== undefined ||
      this.cohorts.of(holder) !== undefined
    );
  }

  /**
   * The server has granted to an attempt that is over here: it had served it before, and has remembered it again since, from a snapshot
   * or a replica that lagged. Unanswered, each such grant would keep the others out for as long as it is provisional.
   */
  #leaveUnknown(holder: string, { lock, provisional }: Notice): void {
    const entry: QueueEntry = { lock, mode: 'exclusive', holder, provisional, lease: Number(provisional) };
    this.leaves.add(entry, this.servers.batcherOf(lock));
  }
}
