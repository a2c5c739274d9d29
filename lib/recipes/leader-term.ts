import type { Clock } from '../api/clock.js';
import type { ResignReason } from '../api/lock-events.js';
import type { GrantedLock } from '../core/hold/granted-lock.js';
import { lossSignal } from '../core/hold/loss-signal.js';
import type { LockManager } from '../core/lock-manager.js';
import { withJson } from '../core/toolkit/with-json.js';

/** The argument of a task that runs while this process leads. */
export interface LeaderTerm {
  /** The key that this process leads. */
  readonly key: string;
  /**
   * Larger than that of every earlier leader. Send it along with every write, and let the resource refuse a smaller one than it has
   * seen. `null` where the provider has none that is honest.
   */
  readonly fencingToken: bigint | null;
  /**
   * Aborts when the lock is lost, when the `signal` of the campaign aborts and when the application begins to stop: end the task then.
   * Asked after a blocked event loop, it looks at the clock; its listeners are called when timers run.
   *
   * The signal has not aborted when the task starts. Like any `AbortSignal`, it never calls a listener that is added after it has aborted:
   * look at `aborted` before you add one later.
   */
  readonly signal: AbortSignal;
}

/** The work of a leader. It runs until it ends by itself or its term's signal aborts. */
export type LeaderTask = (term: LeaderTerm) => PromiseLike<unknown>;

/** One term of this process: from the election to the resignation. */
export class Term {
  readonly #controller = new AbortController();
  readonly #joined = new Set<Promise<unknown>>();
  readonly #electedAt: number;
  /** When its lock was lost. */
  #lostAt: number | undefined;
  /** Since when nothing of it should run any more; not after an end that the application asked for, which may take its time. */
  #overdueSince: number | undefined;
  #reason: ResignReason = 'task-ended';

  constructor(
    private readonly manager: LockManager,
    private readonly lock: GrantedLock,
    private readonly clock: Clock,
  ) {
    this.#electedAt = clock.now();
    lossSignal(this.#controller, () => lock.lostError);
    lock.whenLost((error) => {
      this.#lostAt = clock.now();
      this.#overdueSince ??= this.#lostAt;
      this.end('lost', error);
    });
  }

  /** Whether this process leads, by the validity of the lock at this moment, and is not about to resign. */
  get isValid(): boolean {
    return !this.#controller.signal.aborted && this.lock.isHeld();
  }

  /** For how many ms something of this term has run on after a loss, or after its task had ended or failed. */
  get overdue(): number {
    // Looks at the clock.
    return this.#controller.signal.aborted && this.#overdueSince !== undefined
      ? this.clock.now() - this.#overdueSince
      : 0;
  }

  /** For how many ms this process has led, or had led until the loss. */
  get ledFor(): number {
    return (this.#lostAt ?? this.clock.now()) - this.#electedAt;
  }

  /** Aborts the signal of the term. Its lock is kept until its task has ended. */
  end(reason: ResignReason, cause?: unknown): void {
    if (this.#controller.signal.aborted) return;
    this.#reason = reason;
    if (reason === 'task-ended') this.#overdueSince = this.clock.now();
    this.#controller.abort(cause);
  }

  /** Runs the task, unless the term has ended by then. A failure after the end of the term is not one of the task. @throws what it throws before that */
  async run(task: LeaderTask): Promise<void> {
    if (this.#controller.signal.aborted) return;
    const { key, fencingToken } = this.lock;
    const { signal } = this.#controller;
    try {
      // The term may have ended since this call began. A task that waits for the event `abort` would wait permanently.
      await this.join(() => (signal.aborted ? undefined : task(withJson({ key, fencingToken, signal }))));
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /**
   * Runs work as a part of a valid term: this process does not resign before it has ended. It enters the lock once more, so a release in it
   * (`currentLock().release()`) ends its own entry and not the term.
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

  /** Waits for what has joined, and gives the lock back. @param failed whether the task failed */
  async resign(failed: boolean): Promise<ResignReason> {
    // Work that the task has left behind ends as well.
    this.end('task-ended');
    while (this.#joined.size > 0) await Promise.all(this.#joined);
    const result = await this.lock.releaseAfterTask(failed);
    return this.#reason === 'task-ended' && result === 'lost' ? 'lost' : this.#reason;
  }
}
