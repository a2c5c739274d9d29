import { LockError, LockTimeoutError, LockUnavailableError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LockEventPublisher } from '../events/publisher.js';
import type { Lock } from '../../api/lock.js';
import { isPromiseLike } from '../toolkit/answer.js';
import type { Attempt, LeaseTerms } from './attempt.js';
import type { Clock } from '../../api/clock.js';
import { Departure } from './departure.js';
import { Hold } from '../hold/hold.js';
import type { Answer, Grant } from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import { isRetryable, wasSent } from './retryable.js';
import { nameOf } from '../events/subject.js';

/** What a caller wants of one key. */
export interface Wish {
  readonly subject: LockEvent;
  readonly terms: LeaseTerms;
  /** When the caller came, on the monotonic clock. */
  readonly startedAt: number;
  /** When the caller stops waiting, on the monotonic clock. */
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;
  /** How many other keys of this provider the caller holds. */
  readonly depth: number;
  /** The locks around the caller. As long as one of them is held, a drain waits for the caller instead of sending it away. */
  readonly around: readonly Pick<Lock, 'isHeld'>[];
}

/** Where an acquisition is on record, and what it does there. */
export interface Ledger {
  readonly clock: Clock;
  readonly random: Random;
  readonly events: LockEventPublisher;
  /** A new attempt, known before it is sent, so that whatever the backend says about it finds it. */
  begin(acquisition: Acquisition): Attempt;
  ask(attempt: Attempt, now: number): Answer<Grant | 'busy'>;
  /** Whether an answer to the attempt's last ask is as fresh as the clock says: the machine was not suspended meanwhile. Looks now. */
  isCurrent(attempt: Attempt): boolean;
  /** A caller begins, or ceases, to wait for the key. */
  waits(key: string, change: 1 | -1): void;
  /** A caller is queued, for how long nobody knows; or is not any more. */
  queued(change: 1 | -1): void;
  /** Was not answered, and asks again after this pause; told to `hurry` when somebody is answered for the key meanwhile. */
  pauses(acquisition: Acquisition, pause: Promise<void>): Promise<void>;
  /** The attempt is over. */
  end(attempt: Attempt): void;
  /** The attempt was granted in time. */
  hold(attempt: Attempt, grant: Grant, wish: Wish, now: number): Hold;
  /** The attempt is dead: what it was granted, or may have been, is given back in the background. */
  abandon(attempt: Attempt, grant?: Grant): void;
  /** Counts `work` among what a shutdown waits for. */
  inBackground(work: Promise<void>): void;
  /** The backend has answered an ask for the key, or has failed to. */
  answered(key: string): void;
  failed(cause: unknown): void;
  /** Whether this process is known to hold the key by a lock that nobody can re-enter. */
  holdsApart(key: string): boolean;
}

/** What came of one ask, as a value: a failure is an answer too, and asked again. */
type Reply = Grant | 'busy' | Setback;

/** Nothing yet, so ask again. `stale`: a grant that was over before it got here. */
type Setback = 'stale' | Unanswered;

/** The caller does not want the lock any more, and gets `error`. */
interface Cancellation {
  readonly error: unknown;
}

class Unanswered {
  constructor(readonly cause: unknown) {}
}

// How long an ask may stay without any answer before its outcome counts as unknown, however short the caller's wait:
// with `wait: 0` a backend that needs 20 ms to answer is not down.
const PATIENCE = 1_000;
const RETRY_FIRST = 50;
const RETRY_AT_MOST = 1_000;

/**
 * The way from a wish to a hold, for one key: ask; while the outcome is unknown, ask again with the same holder id as
 * long as the caller waits; leave cleanly. Whatever is granted after the caller has left is given back at once.
 */
export class Acquisition {
  #attempt: Attempt;
  #departure: Departure | undefined;
  #dismissal: Cancellation | undefined;
  #wasQueued = false;

  constructor(
    private readonly ledger: Ledger,
    readonly wish: Wish,
  ) {
    this.#attempt = ledger.begin(this);
  }

  /** Answers without a promise when the provider does. */
  start(now: number): Answer<Hold> {
    const answer = this.#ask(now);
    if (isPromiseLike(answer)) return this.#await(answer);
    const outcome = this.#settle(answer, true);
    return outcome instanceof Hold ? outcome : this.#await(Promise.resolve(outcome));
  }

  /** The backend has queued the current attempt, so the deadline now counts as it is. */
  queued(): void {
    this.#attempt.unansweredSince = undefined;
    this.#attempt.mayBeKnown = true;
    this.#departure?.look();
    if (this.#wasQueued) return;
    this.#wasQueued = true;
    this.ledger.queued(1);
    this.ledger.events.publish('waiting', () => this.wish.subject);
  }

  /** Asks now, if it pauses between two asks. */
  hurry(): void {
    this.#departure?.hurry();
  }

  /** The application stops. */
  dismiss(error: Error): void {
    this.#dismissal = { error };
    this.#departure?.leave();
  }

  #ask(now: number): Answer<Reply> {
    this.#attempt.unansweredSince = now;
    try {
      return this.ledger.ask(this.#attempt, now);
    } catch (error) {
      return new Unanswered(error);
    }
  }

  async #await(first: PromiseLike<Reply>): Promise<Hold> {
    const departure = new Departure(this.ledger.clock, () => this.#deadline(), this.wish.signal);
    this.#departure = departure;
    this.ledger.waits(this.wish.subject.key, 1);
    try {
      let pending: PromiseLike<Reply> = first;
      for (let round = 0; ; round += 1) {
        let reply: Reply | undefined;
        try {
          reply = await departure.before(pending);
        } catch (error) {
          reply = new Unanswered(error);
        }
        // Looked at once more: the caller may have left between the answer and here.
        if (reply === undefined || departure.hasLeft()) return await this.#leave(toReply(pending));
        this.#attempt.unansweredSince = undefined;

        const outcome = this.#settle(reply);
        if (outcome instanceof Hold) return outcome;
        // The patience with that ask is over, and maybe the wait with it.
        departure.look();
        await this.ledger.pauses(this, departure.pause(this.#retryDelay(round)));
        if (departure.hasLeft()) return await this.#leave(Promise.resolve(outcome));

        pending = toReply(this.#ask(this.ledger.clock.now()));
        departure.look();
      }
    } finally {
      departure.dispose();
      this.ledger.waits(this.wish.subject.key, -1);
      if (this.#wasQueued) this.ledger.queued(-1);
      this.ledger.end(this.#attempt);
    }
  }

  /**
   * Turns a reply into a hold, or into the reason to ask again. Throws what ends the acquisition.
   *
   * @param isImmediate whether it came in the tick of its ask, so that no suspension can lie between them
   */
  #settle(reply: Reply, isImmediate = false): Hold | Setback {
    if (reply === 'stale') return reply;
    if (reply === 'busy') {
      this.ledger.answered(this.wish.subject.key);
      throw this.#timedOut();
    }
    if (reply instanceof Unanswered) {
      this.#attempt.mayBeKnown ||= wasSent(reply.cause);
      if (isRetryable(reply.cause)) {
        this.ledger.failed(reply.cause);
        return reply;
      }
      this.ledger.abandon(this.#attempt);
      throw reply.cause;
    }
    const attempt = this.#attempt;
    const now = this.ledger.clock.now();
    if (!attempt.revoked && now < reply.validUntil && (isImmediate || this.ledger.isCurrent(attempt))) {
      return this.ledger.hold(attempt, reply, this.wish, now);
    }
    // Granted and over before it got here: not lost, since nobody had it yet, but still waiting. The old id is dead.
    this.ledger.abandon(attempt, reply);
    this.#attempt = this.ledger.begin(this);
    return 'stale';
  }

  async #leave(pending: Promise<Reply>): Promise<Hold> {
    const attempt = this.#attempt;
    attempt.depart();
    const lastWord = this.#lastWord(pending);
    // Only a caller whose time is up waits for it: a grant that crosses the deadline is theirs.
    const word = this.#cancellation() ? undefined : await lastWord;
    const cancelled = this.#cancellation();
    if (cancelled || word === undefined) {
      this.ledger.inBackground(lastWord.then((reply) => this.#giveBack(attempt, reply, pending)));
      throw cancelled?.error;
    }
    const outcome = this.#settle(word);
    if (outcome instanceof Hold) return outcome;
    if (outcome === 'stale') throw this.#timedOut();
    this.ledger.inBackground(this.#giveBack(attempt, outcome, pending));
    throw this.#unavailable(outcome.cause);
  }

  // A provider answers an abort at once. This guards against one that does not.
  async #lastWord(pending: Promise<Reply>): Promise<Reply> {
    const giveUpAt = this.ledger.clock.now() + PATIENCE;
    const guard = new Departure(this.ledger.clock, () => giveUpAt);
    const reply = await guard.before(pending);
    guard.dispose();
    return reply ?? new Unanswered(undefined);
  }

  async #giveBack(attempt: Attempt, word: Reply, pending: Promise<Reply>): Promise<void> {
    if (word instanceof Unanswered) {
      attempt.mayBeKnown ||= wasSent(word.cause);
      this.ledger.abandon(attempt);
    }
    // The id is dead from here on. What is granted to it all the same is given back whenever it comes.
    const reply = await pending;
    if (isGrant(reply)) this.ledger.abandon(attempt, reply);
  }

  #cancellation(): Cancellation | undefined {
    const { signal } = this.wish;
    return signal?.aborted ? { error: signal.reason } : this.#dismissal;
  }

  #deadline(): number {
    const since = this.#attempt.unansweredSince;
    return since === undefined ? this.wish.deadline : Math.max(this.wish.deadline, since + PATIENCE);
  }

  #retryDelay(round: number): number {
    const delay = Math.min(RETRY_FIRST * 2 ** round, RETRY_AT_MOST);
    return delay * (0.5 + this.ledger.random.fraction() / 2);
  }

  #timedOut(): LockTimeoutError {
    const { subject } = this.wish;
    this.ledger.end(this.#attempt);
    const waited = this.ledger.clock.now() - this.wish.startedAt;
    this.ledger.events.publish('timeout', () => ({ ...subject, waited }));
    return new LockTimeoutError(
      `${nameOf(subject)} was busy ${waited < 1 ? 'when asked' : `for the whole wait of ${Math.round(waited)} ms`}` +
        (this.ledger.holdsApart(subject.key)
          ? '; this process holds it through acquire(), which no other call re-enters: run what needs the lock under withLock() or lock.run().'
          : '; raise "wait", or handle busy with onBusy or tryAcquire().'),
      subject,
    );
  }

  #unavailable(cause: unknown): LockUnavailableError {
    const { subject } = this.wish;
    return new LockUnavailableError(`${nameOf(subject)} could not be acquired: ${reasonOf(cause)}`, {
      key: subject.key,
      provider: subject.provider,
      cause,
    });
  }
}

/** A failure in its own words: a backend that refuses has answered. Only one without words is silence. */
function reasonOf(cause: unknown): string {
  const words = cause instanceof Error ? cause.message : '';
  if (words === '') return 'the backend did not answer; check that it is up and reachable.';
  return LockError.is(cause) ? words : `the backend failed with "${words}"; check it and its log.`;
}

async function toReply(answer: Answer<Reply>): Promise<Reply> {
  try {
    return await answer;
  } catch (error) {
    return new Unanswered(error);
  }
}

function isGrant(reply: Reply): reply is Grant {
  return typeof reply === 'object' && !(reply instanceof Unanswered);
}
