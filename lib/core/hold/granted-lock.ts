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
import { identity } from './releases.js';
import { nameOf } from '../events/subject.js';

const NONE: readonly GrantedLock[] = [];

/** The locks that surround the running code. Immutable: each lock creates a new context. */
interface LockContext {
  /** Innermost first. */
  readonly locks: readonly GrantedLock[];
  /** The subset of `locks` entered through {@link GrantedLock.run}. Nested calls may re-enter these. */
  readonly reenterable: readonly GrantedLock[];
}

const NO_LOCKS: LockContext = { locks: NONE, reenterable: NONE };

// Use run() only: before Node 24, enterWith() leaks into the caller (nodejs/node#45848).
const contexts = new AsyncLocalStorage<LockContext>();

/**
 * The open locks around the caller, innermost first. With `owner`, only that owner's. A lost lock stays open until its
 * task ends.
 */
export function surroundingLocks(owner?: object): readonly GrantedLock[] {
  return openOf((contexts.getStore() ?? NO_LOCKS).locks, owner);
}

/** The subset of {@link surroundingLocks} that the caller entered through {@link GrantedLock.run}. */
export function reenterableLocks(owner?: object): readonly GrantedLock[] {
  return openOf((contexts.getStore() ?? NO_LOCKS).reenterable, owner);
}

function openOf(locks: readonly GrantedLock[], owner?: object): readonly GrantedLock[] {
  if (locks.length === 0) return NONE;
  return locks.filter((lock) => lock.isOpen && (owner === undefined || lock.owner === owner));
}

/** Runs `task` outside of all locks. */
export function runDetached<T>(task: () => T): T {
  return contexts.run(NO_LOCKS, task);
}

/** The lock object that the user gets: one owner's entry into one or more holds. */
export class GrantedLock implements Lock {
  readonly mode: LockMode;
  /** Whether the call waits until the release is confirmed, or only until it is sent. */
  readonly releasePolicy: ReleasePolicy;
  #acquiredAt: Date | undefined;
  #controller: AbortController | undefined;
  #listeners: LossListener[] | undefined;
  #isOpen = true;
  /** Whether a task of {@link run} has failed. */
  #hasTaskFailed = false;
  /**
   * Set only while the release is in flight: a promise retains the async context that created it, and with it the
   * previous lock.
   */
  #ending: Promise<ReleaseResult> | undefined;
  #result: ReleaseResult | undefined;
  /** Registered with each hold while there are {@link #listeners}. */
  #onLost: LossListener | undefined;

  constructor(
    /** In acquisition order. */
    readonly holds: readonly [Holder, ...Holder[]],
    private readonly core: ProviderCore,
    settings: { readonly mode: LockMode; readonly release: ReleasePolicy },
    /** The application that owns the lock. No other application can re-enter it. */
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
    // Created on first read, because an AbortSignal costs more than the rest of an uncontended lock.
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

  /** Aborts the signal even though the lock is still held, because the work's result is no longer needed. */
  abort(reason: unknown): void {
    // Creates the signal if necessary, so that code that reads it later finds it aborted.
    if (!this.signal.aborted) this.#controller?.abort(reason);
  }

  /** The loss of the first lost key. Doesn't check the clock. */
  get knownLoss(): LockLostError | undefined {
    for (const hold of this.holds) if (hold.lostError) return hold.lostError;
    return undefined;
  }

  /** The loss of the first lost key. Checks the clock first. */
  get lostError(): LockLostError | undefined {
    this.#expire();
    return this.knownLoss;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Calls `listener` when one of the keys is lost, or immediately if one already is. */
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
      `${nameOf(this.holds[0].subject)} could not be verified: the machine was suspended, and the backend has not responded since. Retry in a moment.`,
      { key: this.key, provider: this.provider },
    );
  }

  async extend(lease?: Duration): Promise<void> {
    if (lease !== undefined && this.core.capabilities.lease === 'session') {
      throw new LockConfigError(
        `${nameOf(this.holds[0].subject)} cannot be extended by a given duration, because its provider's locks live as long as their session. Call extend() without arguments, or set the session timeout on the provider.`,
        { key: this.key, provider: this.provider },
      );
    }
    const milliseconds = lease === undefined ? undefined : toMilliseconds(lease, 'lease', { min: MIN_LEASE });
    if (milliseconds !== undefined) assertKeepable(milliseconds, 'lease', this.core);
    this.#assertNotLost();
    await Promise.all(
      this.holds.map((hold) => {
        const { length } = hold.grant.lease;
        // A lease that ended with `maxHold` would be reported as expired, because leases count as 1 % shorter.
        return hold.extend(Math.min(milliseconds ?? length, Math.max(hold.endsAt - this.core.clock.now(), length)));
      }),
    );
    // The lock may have been released or lost while the responses were in transit.
    this.#assertNotLost();
  }

  run<T>(task: () => T): T {
    if (!this.isOpen) throw lostError(this.holds[0].subject, 'released');
    const context = { locks: this.#before(surroundingLocks()), reenterable: this.#before(reenterableLocks()) };
    try {
      const result = contexts.run(context, task);
      // Handles only real promises: calling `then` on a query builder would run its query.
      if (!types.isPromise(result)) return result;
      return result.then(undefined, (error: unknown) => this.#onTaskFailed(error)) as T;
    } catch (error) {
      return this.#onTaskFailed(error);
    }
  }

  /** Runs `task` under this lock without allowing nested calls to re-enter it. */
  surround<T>(task: () => T): T {
    return contexts.run({ locks: this.#before(surroundingLocks()), reenterable: reenterableLocks() }, task);
  }

  /**
   * Keeps only open locks. Work that reschedules itself with a timer runs in its previous run's context, so keeping
   * closed locks would make the context grow with every run.
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

  /** By default, `inspect` would print the whole core and the holder ids. */
  [inspect.custom](_depth: number, options: InspectOptions): string {
    return `Lock ${inspect(this.toJSON(), options)}`;
  }

  /**
   * Closes this entry and, in reverse order, releases holds with no remaining entries. `failed`: whether the task
   * failed.
   */
  releaseAfterTask(failed: boolean): Promise<ReleaseResult> {
    if (this.#onLost) for (const hold of this.holds) hold.forget(this.#onLost);
    // A listener may call release() again while the first call is still starting.
    if (!this.isOpen) return this.#ending ?? Promise.resolve(this.#result ?? 'released');
    this.#isOpen = false;
    const released = this.#releaseHolds(failed);
    // The result is already set if the hold was lost or still has entries.
    if (this.#result === undefined) this.#ending = released;
    return released;
  }

  #releaseHolds(failed: boolean): Promise<ReleaseResult> {
    const ended = (result: ReleaseResult): ReleaseResult => {
      this.#ending = undefined;
      return (this.#result = result);
    };
    if (this.holds.length === 1) return this.holds[0].release(failed, this, ended);
    // Send all releases before awaiting the first response, so that several keys take only one round trip.
    const all = Promise.all(this.holds.toReversed().map((hold) => hold.release(failed, this, identity)));
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

  /** Ends expired holds, so a query finds a loss even before the watchdog's timer fires. Returns the current time. */
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
