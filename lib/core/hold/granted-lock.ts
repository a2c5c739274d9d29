import { AsyncLocalStorage } from 'node:async_hooks';
import { inspect, type InspectOptions, types } from 'node:util';
import { LockConfigError, type LockLostError, LockUnavailableError } from '../../api/errors.js';
import { toMilliseconds, type Duration } from '../../api/duration.js';
import type { Lock, LockJson, ReleaseResult, ReleaseSettings } from '../../api/lock.js';
import type { LockMode } from '../../api/lock-mode.js';
import type { ReleasePolicy } from '../../api/lock-options.js';
import type { ProviderCore } from '../provider-core.js';
import type { Holder, LossListener } from './holder.js';
import { assertKeepable, MIN_LEASE } from './lease-limits.js';
import { lossSignal } from './loss-signal.js';
import { lostError } from './lost-error.js';
import { asItIs } from './releases.js';
import { nameOf } from '../events/subject.js';

const NONE: readonly GrantedLock[] = [];

/** The locks of a piece of running code. Immutable: a new lock opens a new context. */
interface LockContext {
  /** The locks around it, innermost first. */
  readonly locks: readonly GrantedLock[];
  /** Those of them that {@link GrantedLock.run} has put around it. */
  readonly inHand: readonly GrantedLock[];
}

const NO_LOCKS: LockContext = { locks: NONE, inHand: NONE };

// Entered with run() only: enterWith() leaks into the caller on Node before 24 (nodejs/node#45848).
const contexts = new AsyncLocalStorage<LockContext>();

/** The locks around the caller that have not ended, of one `owner` or of all, innermost first. A lost lock ends when its task does. */
export function surroundingLocks(owner?: object): readonly GrantedLock[] {
  return openOf((contexts.getStore() ?? NO_LOCKS).locks, owner);
}

/** Those of the {@link surroundingLocks} that the caller runs under by {@link GrantedLock.run}. */
export function locksInHand(owner?: object): readonly GrantedLock[] {
  return openOf((contexts.getStore() ?? NO_LOCKS).inHand, owner);
}

function openOf(locks: readonly GrantedLock[], owner?: object): readonly GrantedLock[] {
  if (locks.length === 0) return NONE;
  return locks.filter((lock) => lock.isOpen && (owner === undefined || lock.owner === owner));
}

/** Runs `task` under no lock at all. */
export function runDetached<T>(task: () => T): T {
  return contexts.run(NO_LOCKS, task);
}

/** One entry of one owner into one or several holds: what the user has in hand. */
export class GrantedLock implements Lock {
  readonly mode: LockMode;
  /** Whether what runs under it ends when its release is confirmed, or when it is sent. */
  readonly releasePolicy: ReleasePolicy;
  #acquiredAt: Date | undefined;
  #controller: AbortController | undefined;
  #listeners: LossListener[] | undefined;
  #isOpen = true;
  /** A task of {@link run} has. */
  #hasTaskFailed = false;
  /** While the release is in flight. A promise that was kept would keep the async context that it was made in, and with it the lock before. */
  #ending: Promise<ReleaseResult> | undefined;
  #result: ReleaseResult | undefined;
  /** Listens to the loss of each key, since there are {@link #listeners}. */
  #onLost: LossListener | undefined;

  constructor(
    /** In the order in which they were taken. */
    readonly holds: readonly [Holder, ...Holder[]],
    private readonly core: ProviderCore,
    settings: { readonly mode: LockMode; readonly release: ReleasePolicy },
    /** The owner of this lock: locks of another application are never re-entered. */
    readonly owner: object,
  ) {
    this.mode = settings.mode;
    this.releasePolicy = settings.release;
    for (const hold of holds) hold.use(this);
  }

  get acquiredAt(): Date {
    const { clock } = this.core;
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
    return this.core.name;
  }

  get holder(): string {
    return this.holds[0].id;
  }

  get fencingToken(): bigint | null {
    return this.holds.length === 1 ? this.holds[0].fencingToken : null;
  }

  get fencingTokens(): ReadonlyMap<string, bigint | null> {
    return new Map(this.holds.map((hold) => [hold.key, hold.fencingToken]));
  }

  get signal(): AbortSignal {
    // Made when it is first read: an AbortSignal costs more than the rest of an uncontended lock.
    if (this.#controller === undefined) {
      const controller = (this.#controller = new AbortController());
      lossSignal(controller, () => {
        this.#expire();
      });
      this.whenLost((error) => {
        controller.abort(error);
      });
    }
    return this.#controller.signal;
  }

  /** Aborts the signal of a lock that is still held: nobody waits any more for the work under it. */
  abort(reason: unknown): void {
    // Code that asks later for the signal gets one that has aborted.
    if (!this.signal.aborted) this.#controller?.abort(reason);
  }

  /** Why it is not held any more, if it is known to be lost. It looks at no clock. */
  get knownLoss(): LockLostError | undefined {
    for (const hold of this.holds) if (hold.lostError) return hold.lostError;
    return undefined;
  }

  /** Why it is not held any more, if it was lost. Looks at the clock. */
  get lostError(): LockLostError | undefined {
    this.#expire();
    return this.knownLoss;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Calls `listener` when one of the keys is lost; at once if it is lost already. */
  whenLost(listener: LossListener): void {
    const error = this.lostError;
    if (error) listener(error);
    else if (!this.isOpen) return;
    else if (this.#listeners) this.#listeners.push(listener);
    else {
      this.#listeners = [listener];
      const onLost = (lost: LockLostError): void => {
        const listeners = this.#listeners ?? [];
        this.#listeners = [];
        for (const each of listeners) each(lost);
      };
      this.#onLost = onLost;
      for (const hold of this.holds) hold.whenLost(onLost);
    }
  }

  remaining(): number {
    const now = this.#expire();
    return this.isOpen ? Math.min(...this.holds.map((hold) => hold.remaining(now))) : 0;
  }

  isHeld(): boolean {
    return this.isOpen && this.#status() === 'held';
  }

  assertHeld(): void {
    this.#assertNotLost();
    if (this.#status() !== 'unverified') return;
    throw new LockUnavailableError(
      `${nameOf(this.holds[0].subject)} could not be verified: the machine was suspended, and the backend has not answered since. Retry in a moment.`,
      { key: this.key, provider: this.provider },
    );
  }

  async extend(lease?: Duration): Promise<void> {
    if (lease !== undefined && this.core.capabilities.lease === 'session') {
      throw new LockConfigError(
        `${nameOf(this.holds[0].subject)} cannot be extended by a given time, because the locks of its provider live as long as their session. Call extend() without a time, or set the session timeout on the provider.`,
        { key: this.key, provider: this.provider },
      );
    }
    const milliseconds = lease === undefined ? undefined : toMilliseconds(lease, 'lease', { min: MIN_LEASE });
    if (milliseconds !== undefined) assertKeepable(milliseconds, 'lease', this.core);
    this.#assertNotLost();
    await Promise.all(
      this.holds.map((hold) => {
        const untilEnd = hold.endsAt - this.core.clock.now();
        return hold.extend(Math.min(milliseconds ?? hold.grant.lease.length, Math.max(untilEnd, MIN_LEASE)));
      }),
    );
    // Released or lost while the answer was on its way.
    this.#assertNotLost();
  }

  run<T>(task: () => T): T {
    if (!this.isOpen) throw lostError(this.holds[0].subject, 'released');
    const context = { locks: this.#before(surroundingLocks()), inHand: this.#before(locksInHand()) };
    try {
      const result = contexts.run(context, task);
      // Not any thenable: that of a query builder begins its query with `then`.
      if (!types.isPromise(result)) return result;
      return result.then(undefined, (error: unknown) => this.#onTaskFailed(error)) as T;
    } catch (error) {
      return this.#onTaskFailed(error);
    }
  }

  /** Runs `task` with this lock around it, which `task` does not have in hand by that. */
  surround<T>(task: () => T): T {
    return contexts.run({ locks: this.#before(surroundingLocks()), inHand: locksInHand() }, task);
  }

  /**
   * A new context takes over only locks that have not ended: work that starts itself again from a timer runs in the context of its last
   * run, so contexts that kept ended locks would grow with every run.
   */
  #before(open: readonly GrantedLock[]): readonly GrantedLock[] {
    return open.length === 0 ? [this] : [this, ...open.filter((outer) => outer !== this)];
  }

  release(settings?: ReleaseSettings): Promise<ReleaseResult> {
    return this.releaseAfterTask(settings?.rollback ?? this.#hasTaskFailed);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const released = this.release();
    if (this.releasePolicy === 'confirmed') await released;
  }

  toJSON(): LockJson {
    const { key, keys, provider, mode, acquiredAt, fencingToken, fencingTokens } = this;
    return {
      ...{ key, keys, provider, mode, acquiredAt, fencingToken: textOf(fencingToken) },
      fencingTokens: Object.fromEntries(Array.from(fencingTokens, ([each, token]) => [each, textOf(token)])),
    };
  }

  /** The default form would show the whole core, and the ids of holders. */
  [inspect.custom](_depth: number, options: InspectOptions): string {
    return `Lock ${inspect(this.toJSON(), options)}`;
  }

  /** Releases this entry, and each hold with its last entry, in reverse order. `failed`: the task under it failed. */
  releaseAfterTask(failed: boolean): Promise<ReleaseResult> {
    if (this.#onLost) for (const hold of this.holds) hold.forget(this.#onLost);
    // A listener may release once more while the release begins.
    if (!this.isOpen) return this.#ending ?? Promise.resolve(this.#result ?? 'released');
    this.#isOpen = false;
    const released = this.#releaseHolds(failed);
    // A hold that others have entered, or that is lost, has answered already.
    if (this.#result === undefined) this.#ending = released;
    return released;
  }

  #releaseHolds(failed: boolean): Promise<ReleaseResult> {
    const ended = (result: ReleaseResult): ReleaseResult => {
      this.#ending = undefined;
      return (this.#result = result);
    };
    if (this.holds.length === 1) return this.holds[0].release(failed, this, ended);
    // All are sent before the first answer is awaited, so several keys take the time of one round trip.
    const all = Promise.all(this.holds.toReversed().map((hold) => hold.release(failed, this, asItIs)));
    return all.then((results) => ended(WORST_FIRST.find((result) => results.includes(result)) ?? 'released'));
  }

  #onTaskFailed(error: unknown): never {
    this.#hasTaskFailed = true;
    throw error;
  }

  #status(): 'held' | 'unverified' | 'over' {
    const now = this.#expire();
    let worst: ReturnType<Holder['status']> = 'held';
    for (const hold of this.holds) {
      const status = hold.status(now);
      if (status === 'unverified') this.core.watchdog.renewAfterSuspension();
      if (worst !== 'over') worst = status === 'held' ? worst : status;
    }
    return worst;
  }

  /** Ends what is over by the clock, so that a question finds a loss before the watchdog's timer does. Answers the time. */
  #expire(): number {
    const now = this.core.clock.now();
    for (const hold of this.holds) hold.expire(now);
    return now;
  }

  #assertNotLost(): void {
    const error = this.lostError ?? (this.isOpen ? undefined : lostError(this.holds[0].subject, 'released'));
    if (error) throw error;
  }
}

const WORST_FIRST: readonly ReleaseResult[] = ['lost', 'pending', 'released', 'nested'];

function textOf(token: bigint | null): string | null {
  return token === null ? null : String(token);
}
