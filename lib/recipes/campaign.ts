import { LockError } from '../api/errors.js';
import type { LockEvent, LockEventMap } from '../api/lock-events.js';
import { type LockPlan, subjectOf } from '../core/plan/lock-plan.js';
import type { GrantedLock } from '../core/hold/granted-lock.js';
import type { LockManager } from '../core/lock-manager.js';
import { withAbort } from '../core/toolkit/abort-listeners.js';
import { backOff, pause } from '../core/toolkit/timing.js';
import { type LeaderTask, Term } from './leader-term.js';

// After a term others go first, and processes that lost together do not return together. A task that ends or fails soon after each
// election is started again less and less often, as is an election that is refused. A loss is not the fault of the candidate: if it
// counted, a few losses in a row would leave no candidate that asks.
const PAUSE = { first: 1_000, most: 30_000 };

// Failures that may pass, and were reported. A refusal may pass as well, such as that of a database which is read-only during a failover.
const TRANSIENT: ReadonlySet<string> = new Set(['LOCK_UNAVAILABLE', 'LOCK_LOST', 'LOCK_CAPACITY']);

/** The purpose of a campaign. */
export interface Candidacy {
  readonly key: string;
  /** Checked options, with an endless wait. */
  readonly plan: LockPlan;
  readonly task: LeaderTask;
  /** The caller's; the campaign ends also without it. */
  readonly signal: AbortSignal | undefined;
  /** Gets the errors of the task, after which the campaign goes on. Default: the first one ends it. */
  readonly onError: ((error: unknown) => void) | undefined;
}

interface TermEnd extends Pick<LockEventMap['resigned'], 'reason' | 'ledFor'> {
  /** How many ms after the election the task has returned, if that ended the term. */
  readonly returnedAt: number | undefined;
}

/** One candidate of this process for one key: term after term, never two at a time, until it is ended. */
export class Campaign {
  readonly #subject: LockEvent;
  #term: Term | undefined;
  #isFirst = true;
  #hasWarned = false;

  constructor(
    private readonly manager: LockManager,
    private readonly candidacy: Candidacy,
  ) {
    this.#subject = subjectOf(candidacy.key, candidacy.plan);
  }

  get key(): string {
    return this.#subject.key;
  }

  get provider(): string {
    return this.#subject.provider;
  }

  /** The term of this process, if it leads at this moment. */
  get term(): Term | undefined {
    return this.#term?.isValid ? this.#term : undefined;
  }

  /** See {@link Term.overdue}. */
  get overdue(): number {
    return this.#term?.overdue ?? 0;
  }

  /** Campaigns until `ending` aborts. @throws what the task throws (see `onError`), and a refusal of the backend at the first ask */
  async run(ending: AbortSignal): Promise<void> {
    const { clock, random } = this.candidacy.plan.core;
    let shortTerms = 0;
    while (!ending.aborted) {
      const startedAt = clock.now();
      const term = await this.#campaign(ending);
      const wasLost = term?.reason === 'lost';
      // The wait for an election says nothing about the task: only the term counts, and the wait where there was none.
      const lasted = term?.ledFor ?? clock.now() - startedAt;
      if (wasLost || lasted >= PAUSE.most) shortTerms = 0;
      // Whatever its task has started runs on, in each process that is elected.
      if (term?.returnedAt !== undefined && term.returnedAt < PAUSE.first) this.#warnOfReturn();
      await pause(clock, backOff(random, shortTerms, PAUSE), ending, true);
      if (!wasLost) shortTerms += 1;
      this.#isFirst = false;
    }
  }

  /** From the first ask to the end of one term. Resolves to how it ended; to `undefined` if there was none. */
  async #campaign(ending: AbortSignal): Promise<TermEnd | undefined> {
    const { clock, events } = this.candidacy.plan.core;
    const startedAt = clock.now();
    const lock = await this.#elect(ending, startedAt);
    if (!lock) return undefined;
    const { fencingToken } = lock;
    const term = new Term(this.manager, lock, clock);
    this.#term = term;
    events.publish('elected', { ...this.#subject, waited: Math.round(clock.now() - startedAt), fencingToken });
    return await this.#lead(term, ending);
  }

  async #elect(ending: AbortSignal, startedAt: number): Promise<GrantedLock | undefined> {
    const { plan, key, onError } = this.candidacy;
    const { core } = plan;
    try {
      return await this.manager.acquirePlanned(plan, key, { signal: ending });
    } catch (error) {
      if (ending.aborted || (LockError.is(error) && TRANSIENT.has(error.code))) return undefined;
      // Refused soon after the start, it is a mistake of the caller, who gets it.
      if (!onError && this.#isFirst && core.clock.now() - startedAt < PAUSE.first) throw error;
      core.reachability.failed(error);
      return undefined;
    }
  }

  async #lead(term: Term, ending: AbortSignal): Promise<TermEnd> {
    const { task, signal, onError, plan } = this.candidacy;
    const end = () => {
      term.end(signal?.aborted ? 'signal' : 'shutdown', ending.reason);
    };
    let failure: { readonly error: unknown } | undefined;
    let returnedAt: number | undefined;
    await withAbort(ending, end, async () => {
      try {
        await term.run(task);
        if (term.isValid) returnedAt = term.ledFor;
      } catch (error) {
        failure = { error };
      }
    });
    // Before the resignation, which waits for the calls that have joined the term.
    if (failure) onError?.(failure.error);
    const reason = await term.resign(failure !== undefined);
    this.#term = undefined;
    const { ledFor } = term;
    plan.core.events.publish('resigned', { ...this.#subject, reason, ledFor: Math.round(ledFor) });
    if (failure && !onError) throw failure.error;
    return { reason, ledFor, returnedAt };
  }

  #warnOfReturn(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.candidacy.plan.core.logger.warn(
      `The task of the leader of "${this.key}" returned less than a second after its election, so this instance resigned. Whatever the task started, such as a timer, keeps running here: await work that ends when the term's signal aborts. (Warned once.)`,
    );
  }
}
