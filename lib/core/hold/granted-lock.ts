import { LockConfigError, type LockLostError, LockUnavailableError } from '../../api/errors.js';
import { toMilliseconds, type Duration } from '../../api/duration.js';
import type { Lock, ReleaseResult } from '../../api/lock.js';
import type { LockMode } from '../../api/lock-options.js';
import type { ActiveProvider } from '../active-provider.js';
import { promised } from '../toolkit/answer.js';
import { lostError, type Hold, type LossListener } from './hold.js';
import type { Answer } from '../../api/lock-provider.js';
import { assertKeepable, MIN_LEASE } from '../acquire/lock-settings.js';
import { lossSignal } from './loss-signal.js';
import { runUnder } from './owner-context.js';
import { nameOf } from '../events/subject.js';

/** One entry of one owner into one or several holds: what the user has in hand. */
export class GrantedLock implements Lock {
  readonly mode: LockMode;
  #acquiredAt: Date | undefined;
  #signal: AbortSignal | undefined;
  #listeners: LossListener[] | undefined;
  #isOpen = true;
  // A listener of the very release that asks again gets this.
  #end: Answer<ReleaseResult> = 'released';
  readonly #onLost = (error: LockLostError): void => {
    const listeners = this.#listeners ?? [];
    this.#listeners = [];
    for (const listener of listeners) listener(error);
  };

  constructor(
    /** In the order in which they were taken. */
    readonly holds: readonly [Hold, ...Hold[]],
    private readonly active: ActiveProvider,
    mode: LockMode,
    /** Whose lock this is: locks of another application are never re-entered. */
    readonly owner: object,
  ) {
    this.mode = mode;
    for (const hold of holds) hold.acquiredBy ??= this;
  }

  get acquiredAt(): Date {
    const { clock } = this.active;
    const grantedAt = Math.max(...this.holds.map((hold) => hold.grantedAt));
    return (this.#acquiredAt ??= new Date(clock.wallTime() - (clock.now() - grantedAt)));
  }

  get key(): string {
    return this.holds[0].key;
  }

  get keys(): readonly string[] {
    return this.holds.map((hold) => hold.key);
  }

  get provider(): string {
    return this.active.name;
  }

  get holder(): string {
    return this.holds[0].grant.holder;
  }

  get fencingToken(): bigint | null {
    return this.holds.length === 1 ? this.holds[0].grant.fencingToken : null;
  }

  get fencingTokens(): ReadonlyMap<string, bigint | null> {
    return new Map(this.holds.map((hold) => [hold.key, hold.grant.fencingToken]));
  }

  get signal(): AbortSignal {
    // Made when it is first read: an AbortSignal costs more than the rest of an uncontended lock.
    if (this.#signal === undefined) {
      const controller = new AbortController();
      this.#signal = lossSignal(controller, () => {
        for (const hold of this.holds) hold.isValid();
      });
      this.whenLost((error) => {
        controller.abort(error);
      });
    }
    return this.#signal;
  }

  /** Why it is not held any more, if it was lost. */
  get lostError(): LockLostError | undefined {
    for (const hold of this.holds) if (hold.lostError) return hold.lostError;
    return undefined;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Calls `listener` when one of the keys is lost; at once if it is lost already. */
  whenLost(listener: LossListener): void {
    const error = this.lostError;
    if (error) listener(error);
    else if (this.#listeners) this.#listeners.push(listener);
    else {
      this.#listeners = [listener];
      for (const hold of this.holds) hold.whenLost(this.#onLost);
    }
  }

  remaining(): number {
    return this.isOpen ? Math.min(...this.holds.map((hold) => hold.remaining())) : 0;
  }

  isHeld(): boolean {
    return this.isOpen && this.#status() === 'held';
  }

  assertHeld(): void {
    this.#assertNotLost();
    if (this.#status() !== 'unconfirmed') return;
    throw new LockUnavailableError(
      `${nameOf(this.holds[0].subject)} is unconfirmed: the machine was suspended, and the backend has not answered since; ask again in a moment.`,
      { key: this.key, provider: this.provider },
    );
  }

  async extend(lease?: Duration): Promise<void> {
    if (lease !== undefined && this.active.capabilities.lease === 'session') {
      throw new LockConfigError(
        `${nameOf(this.holds[0].subject)} cannot be extended by a time of its own: its provider's locks live as long as their session; set the session's time on the provider, or call extend() without a time.`,
        { key: this.key, provider: this.provider },
      );
    }
    const milliseconds = lease === undefined ? undefined : toMilliseconds(lease, 'lease', { min: MIN_LEASE });
    if (milliseconds !== undefined) assertKeepable(milliseconds, 'lease', this.active);
    this.#assertNotLost();
    await Promise.all(
      this.holds.map((hold) => {
        const untilEnd = hold.endsAt - this.active.clock.now();
        return this.active.holds.extend(hold, Math.min(milliseconds ?? hold.lease, Math.max(untilEnd, MIN_LEASE)));
      }),
    );
    // Released or lost while the answer was on its way.
    this.#assertNotLost();
  }

  run<T>(task: () => T): T {
    return runUnder(this, task);
  }

  release(): Promise<ReleaseResult> {
    return promised(() => this.end(false));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** Ends this entry, and each hold with its last entry, in reverse order. `failed`: the task under it failed. */
  end(failed: boolean): Answer<ReleaseResult> {
    if (this.#listeners) for (const hold of this.holds) hold.forget(this.#onLost);
    if (!this.isOpen) return this.#end;
    this.#isOpen = false;
    return (this.#end =
      this.holds.length === 1 ? this.active.holds.leave(this.holds[0], failed, this) : this.#leaveAll(failed));
  }

  async #leaveAll(failed: boolean): Promise<ReleaseResult> {
    // All are sent before the first answer is awaited: what is left is only the time of one round trip.
    const answers = this.holds.toReversed().map((hold) => this.active.holds.leave(hold, failed, this));
    const results: ReleaseResult[] = [];
    for (const answer of answers) results.push(await answer);
    return WORST_FIRST.find((result) => results.includes(result)) ?? 'released';
  }

  #status(): 'held' | 'unconfirmed' | 'released' | 'lost' {
    let worst: ReturnType<Hold['status']> = 'held';
    for (const hold of this.holds) {
      const status = hold.status();
      if (status === 'unconfirmed') this.active.holds.confirmAfterSuspension();
      if (status !== 'held') worst = status;
    }
    return worst;
  }

  #assertNotLost(): void {
    const error = this.lostError ?? (this.isOpen ? undefined : lostError(this.holds[0].subject, 'released'));
    if (error) throw error;
  }
}

const WORST_FIRST: readonly ReleaseResult[] = ['lost', 'unconfirmed', 'released', 'nested'];
