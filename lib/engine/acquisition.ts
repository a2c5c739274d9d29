import { LockError, LockTimeoutError, LockUnavailableError } from '../lock/errors.js';
import type { LockEvent, LockEventPublisher } from '../lock/lock-events.js';
import { isPromiseLike } from './answer.js';
import type { Attempt, LeaseTerms } from './attempt.js';
import type { Clock } from './clock.js';
import { Departure } from './departure.js';
import type { Hold } from './hold.js';
import type { Answer, Grant, Random } from './lock-provider.js';
import { nameOf } from './subject.js';

/** What a caller wants of one key. */
export interface Wish {
  readonly subject: LockEvent;
  readonly terms: LeaseTerms;
  /** When the caller came, on the monotonic clock. */
  readonly startedAt: number;
  /** When the caller stops waiting, on the monotonic clock. */
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;
  /** The caller holds other locks already, so a drain waits for it instead of sending it away. */
  readonly nested: boolean;
}

/** Where an acquisition is on record, and what it does there. */
export interface Ledger {
  readonly clock: Clock;
  readonly random: Random;
  readonly events: LockEventPublisher;
  /** A new attempt, known before it is sent, so that whatever the backend says about it finds it. */
  begin(acquisition: Acquisition): Attempt;
  ask(attempt: Attempt): Answer<Grant | 'busy'>;
  /** The attempt does not wait any more. */
  end(attempt: Attempt): void;
  /** The attempt was granted in time. */
  hold(attempt: Attempt, grant: Grant, wish: Wish): Hold;
  /** The attempt is dead: whatever it left in the backend is removed in the background. */
  abandon(attempt: Attempt): void;
  /** As `abandon`, once it is known that the attempt may have been granted. */
  giveBackLater(attempt: Attempt, possiblyHeld: Promise<boolean>): void;
  reportUnavailable(cause: unknown): void;
  holdsOf(key: string): readonly Hold[];
}

/** The answer to one ask, as a value: a failure is an answer too, and asked again. */
type Reply = Grant | 'busy' | Unanswered;

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

  constructor(
    private readonly ledger: Ledger,
    readonly wish: Wish,
  ) {
    this.#attempt = ledger.begin(this);
  }

  /** Answers without a promise when the provider does. */
  start(): Answer<Hold> {
    const answer = this.#ask();
    if (isPromiseLike(answer)) return this.#await(toReply(answer));
    return (
      this.#settle(answer) ?? this.#await(answer instanceof Unanswered ? Promise.resolve(answer) : toReply(this.#ask()))
    );
  }

  /** The backend has queued the current attempt, so the deadline now counts as it is. */
  queued(): void {
    this.#attempt.unansweredSince = undefined;
    this.#departure?.look();
  }

  /** The application stops. */
  dismiss(error: Error): void {
    this.#departure?.dismiss(error);
  }

  #ask(): Answer<Reply> {
    this.#attempt.unansweredSince = this.ledger.clock.now();
    try {
      return this.ledger.ask(this.#attempt);
    } catch (error) {
      return new Unanswered(error);
    }
  }

  async #await(first: Promise<Reply>): Promise<Hold> {
    const departure = new Departure(this.ledger.clock, () => this.#deadline(), this.wish.signal);
    this.#departure = departure;
    try {
      let reply = first;
      for (let round = 0; ; round += 1) {
        const answered = await departure.before(reply);
        if (!answered) return await this.#leave(departure, reply);
        this.#attempt.unansweredSince = undefined;

        const hold = this.#settle(answered.value);
        if (hold) return hold;
        if (answered.value instanceof Unanswered) {
          const failure = answered.value;
          this.ledger.reportUnavailable(failure.cause);
          departure.look();
          if (!(await departure.pause(this.#retryDelay(round))))
            return await this.#leave(departure, Promise.resolve(failure));
        }
        reply = toReply(this.#ask());
        departure.look();
      }
    } finally {
      departure.dispose();
      this.ledger.end(this.#attempt);
    }
  }

  /** Turns an answer into a hold; throws what ends the acquisition; answers undefined when it is to be asked again. */
  #settle(reply: Reply): Hold | undefined {
    if (reply === 'busy') {
      this.ledger.end(this.#attempt);
      throw this.#timedOut();
    }
    if (reply instanceof Unanswered) {
      const { cause } = reply;
      // Pool exhausted, refused by the backend's configuration, …: asking again would not change it.
      if (LockError.is(cause) && !(cause instanceof LockUnavailableError)) {
        this.ledger.abandon(this.#attempt);
        throw cause;
      }
      return undefined;
    }
    if (this.#attempt.revoked || this.ledger.clock.now() >= reply.validUntil) {
      // Granted and over before it got here: not lost, since nobody had it yet, but still waiting. The old id is dead.
      this.ledger.abandon(this.#attempt);
      this.#attempt = this.ledger.begin(this);
      return undefined;
    }
    return this.ledger.hold(this.#attempt, reply, this.wish);
  }

  async #leave(departure: Departure, pending: Promise<Reply>): Promise<Hold> {
    const leaving = departure.left ?? { why: 'timeout' as const };
    const attempt = this.#attempt;
    attempt.depart();
    if (leaving.why !== 'timeout') {
      this.ledger.giveBackLater(attempt, pending.then(isPossiblyHeld));
      throw leaving.why === 'aborted' ? leaving.reason : leaving.error;
    }
    const reply = await this.#lastWord(pending);
    if (reply === 'busy') throw this.#timedOut();
    if (!(reply instanceof Unanswered)) {
      // A grant that crossed the deadline: the caller is still here, so it is theirs.
      const hold = this.#settle(reply);
      if (hold) return hold;
      throw this.#timedOut();
    }
    this.ledger.abandon(attempt);
    this.ledger.giveBackLater(attempt, pending.then(isGrant));
    this.ledger.reportUnavailable(reply.cause);
    throw this.#unavailable(reply.cause);
  }

  // A provider answers an abort at once. This guards against one that does not.
  async #lastWord(pending: Promise<Reply>): Promise<Reply> {
    const guard = new Departure(this.ledger.clock, deadlineIn(this.ledger.clock.now() + PATIENCE), undefined);
    try {
      const answered = await guard.before(pending);
      return answered ? answered.value : new Unanswered(undefined);
    } finally {
      guard.dispose();
    }
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
    const waited = this.ledger.clock.now() - this.wish.startedAt;
    this.ledger.events.publish('timeout', () => ({ ...subject, waited }));
    const own = this.ledger.holdsOf(subject.key).some((hold) => hold.isValid());
    return new LockTimeoutError(
      `${nameOf(subject)} was busy ${waited < 1 ? 'when asked' : `for the whole wait of ${Math.round(waited)} ms`}` +
        (own
          ? '; this process holds it: a task re-enters a lock that it runs under, so use withLock() or lock.run() around it.'
          : '; raise "wait", or handle busy with onBusy or tryAcquire().'),
      { key: subject.key, provider: subject.provider },
    );
  }

  #unavailable(cause: unknown): LockUnavailableError {
    const { subject } = this.wish;
    return new LockUnavailableError(
      `${nameOf(subject)} could not be acquired: the backend did not answer; check that it is up and reachable.`,
      { key: subject.key, provider: subject.provider, cause },
    );
  }
}

function deadlineIn(time: number): () => number {
  return () => time;
}

async function toReply(answer: Answer<Reply>): Promise<Reply> {
  try {
    return await answer;
  } catch (error) {
    return new Unanswered(error);
  }
}

function isGrant(reply: Reply): boolean {
  return reply !== 'busy' && !(reply instanceof Unanswered);
}

function isPossiblyHeld(reply: Reply): boolean {
  return reply !== 'busy';
}
