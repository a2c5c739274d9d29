import type { Clock } from '../api/clock.js';
import { LockError } from '../api/errors.js';
import type { LockEvent, ResignReason } from '../api/lock-events.js';
import { type LockPlan, subjectOf } from '../core/plan/lock-plan.js';
import type { GrantedLock } from '../core/hold/granted-lock.js';
import { lossSignal } from '../core/hold/loss-signal.js';
import type { LockManager } from '../core/lock-manager.js';
import { withAbort } from '../core/toolkit/abort-listeners.js';
import { backOff, pause } from '../core/toolkit/timing.js';
import { withJson } from '../core/toolkit/with-json.js';

// The pause after a term lets other candidates go first and spreads out processes that lost together. A task that ends
// or fails soon after each election is started less and less often. The same applies to a refused election. A loss is
// not the candidate's fault: if losses counted, a few in a row would leave no candidates.
const PAUSE = { first: 1_000, most: 30_000 };

// Failures that may be temporary and have already been reported. A refusal may also be temporary, for example from a
// database that is read-only during a failover.
const TRANSIENT: ReadonlySet<string> = new Set(['LOCK_UNAVAILABLE', 'LOCK_LOST', 'LOCK_CAPACITY']);

/** The argument of a task that runs while this process leads. */
export interface LeaderTerm {
  /** The key that this process leads. */
  readonly key: string;
  /**
   * Larger than the token of every earlier leader. Send it along with every write, and make the resource reject tokens
   * smaller than the largest it has seen. `null` if the provider has no reliable one.
   */
  readonly fencingToken: bigint | null;
  /**
   * Aborts when the lock is lost, the campaign's `signal` aborts, or the application begins to shut down. End the task
   * then. Reading the signal checks the clock even after the event loop was blocked; listeners aren't called until
   * timers run.
   *
   * The signal has not aborted when the task starts. Like any `AbortSignal`, it never calls a listener added after it
   * has aborted: check `aborted` before you add one later.
   */
  readonly signal: AbortSignal;
}

/** A leader's work. It runs until it ends or its term's signal aborts. */
export type LeaderTask = (term: LeaderTerm) => PromiseLike<unknown>;

/** A campaign's subject. */
export interface Candidacy {
  readonly key: string;
  /** Validated options, with an unlimited wait. */
  readonly plan: LockPlan;
  readonly task: LeaderTask;
  /** The caller's signal; the campaign may also end for other reasons. */
  readonly signal: AbortSignal | undefined;
  /** Receives the task's errors; the campaign then continues. Default: the first error ends it. */
  readonly onError: ((error: unknown) => void) | undefined;
}

/** This process's candidacy for one key: one term after another, never two at once, until it is ended. */
export class Campaign {
  readonly subject: LockEvent;
  #term: Term | undefined;
  #hasWarned = false;

  constructor(
    private readonly manager: LockManager,
    private readonly candidacy: Candidacy,
  ) {
    this.subject = subjectOf(candidacy.key, candidacy.plan);
  }

  /** This process's term, if it currently leads. */
  get term(): Term | undefined {
    return this.#term?.isValid ? this.#term : undefined;
  }

  /** See {@link Term.overdue}. */
  get overdue(): number {
    return this.#term?.overdue ?? 0;
  }

  /**
   * Campaigns until `ending` aborts.
   *
   * @throws what the task throws (see `onError`), and a refusal by the backend on the first attempt
   */
  async run(ending: AbortSignal): Promise<void> {
    const { clock, random, events } = this.candidacy.plan.core;
    let shortTerms = 0;
    for (let isFirst = true; !ending.aborted; isFirst = false) {
      const startedAt = clock.now();
      const lock = await this.#elect(ending, isFirst, startedAt);
      const waited = clock.now() - startedAt;
      let wasLost = false;
      // The wait for an election says nothing about the task, so it counts only if no term follows.
      let lasted = waited;
      if (lock) {
        const term = (this.#term = new Term(this.manager, lock, clock));
        events.publish('elected', { ...this.subject, waited: Math.round(waited), fencingToken: lock.fencingToken });
        await this.#lead(term, ending);
        wasLost = term.reason === 'lost';
        lasted = term.ledFor;
      }
      if (wasLost || lasted >= PAUSE.most) shortTerms = 0;
      await pause(clock, backOff(random, shortTerms, PAUSE), ending, true);
      if (!wasLost) shortTerms += 1;
    }
  }

  async #elect(ending: AbortSignal, isFirst: boolean, startedAt: number): Promise<GrantedLock | undefined> {
    const { plan, key, onError } = this.candidacy;
    const { clock, reachability } = plan.core;
    try {
      return await this.manager.acquirePlanned(plan, key, { signal: ending });
    } catch (error) {
      if (ending.aborted || (LockError.is(error) && TRANSIENT.has(error.code))) return undefined;
      // A refusal soon after the start is the caller's mistake, so rethrow it.
      if (!onError && isFirst && clock.now() - startedAt < PAUSE.first) throw error;
      reachability.failed(error);
      return undefined;
    }
  }

  async #lead(term: Term, ending: AbortSignal): Promise<void> {
    const { task, signal, onError, plan } = this.candidacy;
    const end = () => {
      term.end(signal?.aborted ? 'signal' : 'shutdown', ending.reason);
    };
    const failure = await withAbort(ending, end, () => term.run(task));
    if (!failure && term.isValid && term.ledFor < PAUSE.first) this.#warnOfReturn();
    try {
      // Report the error before resigning, which waits for the calls that joined the term.
      if (failure) onError?.(failure.error);
    } finally {
      await term.resign(failure !== undefined);
      this.#term = undefined;
    }
    const { reason, ledFor } = term;
    plan.core.events.publish('resigned', { ...this.subject, reason, ledFor: Math.round(ledFor) });
    if (failure && !onError) throw failure.error;
  }

  /** Warns that work started by the task keeps running in every process that was elected. */
  #warnOfReturn(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.candidacy.plan.core.logger.warn(
      `The leader task of "${this.subject.key}" returned less than a second after the election, so this instance resigned. Anything the task started, such as a timer, keeps running here: await work that ends when the term's signal aborts. (Warned once.)`,
    );
  }
}

/**
 * A term lasts until its signal aborts. After that, its lock is kept until its task and the calls that joined it end.
 */
type TermState =
  | { readonly phase: 'leading' }
  | {
      readonly phase: 'ending';
      readonly reason: ResignReason;
      /**
       * When everything belonging to the term should have stopped. `undefined` if the application requested
       * the end, which may take a while.
       */
      readonly overdueSince: number | undefined;
      readonly lostAt: number | undefined;
    };

/** One term of this process, from election to resignation. */
export class Term {
  readonly #controller = new AbortController();
  readonly #joined = new Set<Promise<unknown>>();
  readonly #electedAt: number;
  #state: TermState = { phase: 'leading' };

  constructor(
    private readonly manager: LockManager,
    private readonly lock: GrantedLock,
    private readonly clock: Clock,
  ) {
    this.#electedAt = clock.now();
    lossSignal(this.#controller, () => lock.lostError);
    lock.whenLost((error) => {
      this.end('lost', error);
    });
  }

  /** Whether this process leads, based on the lock's current validity, and is not about to resign. */
  get isValid(): boolean {
    return !this.#controller.signal.aborted && this.lock.isHeld();
  }

  /** Why the term ends. */
  get reason(): ResignReason {
    return this.#state.phase === 'ending' ? this.#state.reason : 'task-ended';
  }

  /** How long anything from this term has kept running after a loss or after its task ended or failed, in ms. */
  get overdue(): number {
    // `signal.aborted` checks the clock.
    const isOver = this.#controller.signal.aborted;
    const since = isOver && this.#state.phase === 'ending' ? this.#state.overdueSince : undefined;
    return since === undefined ? 0 : this.clock.now() - since;
  }

  /** How long this process has led (until the loss, if any), in ms. */
  get ledFor(): number {
    const lostAt = this.#state.phase === 'ending' ? this.#state.lostAt : undefined;
    return (lostAt ?? this.clock.now()) - this.#electedAt;
  }

  /**
   * Aborts the term's signal, but keeps its lock until its task ends. The first reason counts; a later loss is still
   * recorded.
   */
  end(reason: ResignReason, cause?: unknown): void {
    const now = this.clock.now();
    switch (this.#state.phase) {
      case 'leading': {
        const isRequested = reason === 'signal' || reason === 'shutdown';
        const lostAt = reason === 'lost' ? now : undefined;
        this.#state = { phase: 'ending', reason, overdueSince: isRequested ? undefined : now, lostAt };
        this.#controller.abort(cause);
        return;
      }
      case 'ending':
        if (reason !== 'lost') return;
        this.#state = { ...this.#state, lostAt: now, overdueSince: this.#state.overdueSince ?? now };
    }
  }

  /**
   * Runs the task. Resolves to its failure, unless the term had already ended, when a failure isn't the task's fault.
   */
  async run(task: LeaderTask): Promise<{ readonly error: unknown } | undefined> {
    const { key, fencingToken } = this.lock;
    const { signal } = this.#controller;
    try {
      // If the term has already ended, a task that waits for the `abort` event will never get it.
      await this.join(() => (signal.aborted ? undefined : task(withJson({ key, fencingToken, signal }))));
      return undefined;
    } catch (error) {
      return signal.aborted ? undefined : { error };
    }
  }

  /**
   * Runs work as part of a valid term: this process does not resign until the work ends. The work re-enters the
   * lock, so `currentLock().release()` inside it ends only that entry, not the term.
   */
  join<T>(work: () => T | PromiseLike<T>): Promise<T> {
    const { manager, lock } = this;
    const { key, provider } = lock;
    const call = manager.withLock(key, work, { provider, within: lock });
    const over = Promise.allSettled([call]);
    this.#joined.add(over);
    void over.then(() => this.#joined.delete(over));
    return call;
  }

  /** Waits for everything that has joined, and releases the lock. @param failed whether the task failed */
  async resign(failed: boolean): Promise<void> {
    // Also end any work that the task left running.
    this.end('task-ended');
    while (this.#joined.size > 0) await Promise.all(this.#joined);
    const result = await this.lock.releaseAfterTask(failed);
    if (this.#state.phase === 'ending' && this.#state.reason === 'task-ended' && result === 'lost') {
      this.#state = { ...this.#state, reason: 'lost' };
    }
  }
}
