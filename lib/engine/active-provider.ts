import {
  LockCapacityError,
  LockConfigError,
  type LockLostError,
  LockUnavailableError,
  type LossReason,
} from '../lock/errors.js';
import type { LockEventPublisher } from '../lock/lock-events.js';
import type { ReleaseResult } from '../lock/lock.js';
import { Acquisition, type Ledger, type Wish } from './acquisition.js';
import { isPromiseLike } from './answer.js';
import { Attempt } from './attempt.js';
import type { Clock } from './clock.js';
import { Hold } from './hold.js';
import { LocalQueue } from './local-queue.js';
import type {
  Answer,
  Grant,
  LockCapabilities,
  LockLogger,
  LockProvider,
  ProviderEvent,
  Random,
  ReleaseOutcome,
} from './lock-provider.js';
import { Releases } from './releases.js';
import { nameOf } from './subject.js';
import type { SuspensionDetector } from './suspension.js';
import { Watchdog } from './watchdog.js';

/** What the engine of one application shares among its providers. */
export interface EngineParts {
  readonly namespace: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  readonly events: LockEventPublisher;
  readonly suspension: SuspensionDetector;
  readonly maxWaiters: number;
}

// How long shutdown waits for releases that were not answered yet, in ms. The leases of the rest end by themselves.
const LAST_RELEASES = 2_000;

// Providers that are or were at work: a provider has one life.
const started = new WeakSet<LockProvider>();

/** One provider at work in this process: who waits, who holds, and the way back. */
export class ActiveProvider implements Ledger {
  readonly capabilities: LockCapabilities;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: LockEventPublisher;
  readonly #backend: LockProvider;
  readonly #watchdog: Watchdog;
  readonly #releases: Releases;
  readonly #attempts = new Map<string, { readonly attempt: Attempt; readonly acquisition: Acquisition }>();
  readonly #waitersOf = new Map<string, number>();
  readonly #holds = new Map<string, Hold>();
  #onceIdle: (() => void) | undefined;
  #reachable = true;
  #confirmedAfter = 0;

  constructor(
    readonly name: string,
    private readonly provider: LockProvider,
    private readonly parts: EngineParts,
  ) {
    this.capabilities = provider.capabilities;
    this.clock = parts.clock;
    this.random = parts.random;
    this.events = parts.events;
    this.#backend = provider.capabilities.queue === 'engine' ? new LocalQueue(provider) : provider;
    this.#releases = new Releases(this.#backend, parts.clock, parts.random);
    this.#watchdog = new Watchdog(
      this.#backend,
      parts.clock,
      parts.suspension,
      (hold) => {
        this.events.publish('renewed', () => ({ ...hold.subject, remaining: hold.remaining() }));
      },
      (cause) => {
        this.reportUnavailable(cause);
      },
    );
  }

  /** @throws LockConfigError when the provider was started before; what the provider throws. */
  async start(): Promise<void> {
    if (started.has(this.provider)) {
      throw new LockConfigError(
        `Lock provider "${this.name}" was started before: make a new provider for each application and each name.`,
        { provider: this.name },
      );
    }
    started.add(this.provider);
    const { namespace, clock, random, logger } = this.parts;
    await this.#backend.start({
      name: this.name,
      namespace,
      clock,
      random,
      logger,
      emit: (event) => {
        this.#observe(event);
      },
    });
  }

  async stop(): Promise<void> {
    await this.#releases.close(LAST_RELEASES);
    await this.#backend.stop();
  }

  /** Takes the lock, waiting for it if the wish says so. */
  take(wish: Wish): Answer<Hold> {
    return new Acquisition(this, wish).start();
  }

  // --- what an acquisition does ---

  begin(acquisition: Acquisition): Attempt {
    const { wish } = acquisition;
    const { key } = wish.subject;
    const waiters = this.#waitersOf.get(key) ?? 0;
    if (waiters >= this.parts.maxWaiters) {
      throw new LockCapacityError(
        `${nameOf(wish.subject)} has ${waiters} callers waiting in this process already: shed load, shorten "wait", or raise maxWaiters.`,
        { key, provider: this.name },
      );
    }
    this.#waitersOf.set(key, waiters + 1);
    const attempt = new Attempt(this.random.id(), wish.subject, wish.terms, wish.deadline, this.clock);
    this.#attempts.set(attempt.holder, { attempt, acquisition });
    return attempt;
  }

  ask(attempt: Attempt): Answer<Grant | 'busy'> {
    return this.#backend.acquire(attempt);
  }

  end(attempt: Attempt): void {
    if (!this.#attempts.delete(attempt.holder)) return;
    const waiters = (this.#waitersOf.get(attempt.key) ?? 1) - 1;
    if (waiters === 0) this.#waitersOf.delete(attempt.key);
    else this.#waitersOf.set(attempt.key, waiters);
  }

  hold(attempt: Attempt, grant: Grant, wish: Wish): Hold {
    this.end(attempt);
    const hold = new Hold(wish.subject, grant, wish.terms, this.clock, this.parts.suspension, this.#onLost);
    this.#holds.set(grant.holder, hold);
    this.#watchdog.add(hold);
    this.#reachable = true;
    this.events.publish('acquired', () => ({
      ...wish.subject,
      waited: hold.grantedAt - wish.startedAt,
      fencingToken: grant.fencingToken,
    }));
    return hold;
  }

  abandon(attempt: Attempt): void {
    this.end(attempt);
    this.#releases.send(attempt, { keepFor: 0, failed: true }, this.#orphanedUntil(attempt));
  }

  giveBackLater(attempt: Attempt, possiblyHeld: Promise<boolean>): void {
    this.end(attempt);
    this.#releases.track(
      possiblyHeld.then((held) => {
        if (held) this.abandon(attempt);
      }),
    );
  }

  // --- what a lock does ---

  /** Gives a hold back. `failed`: its task failed, so a transaction beneath it is rolled back. */
  release(hold: Hold, failed: boolean): Answer<Exclude<ReleaseResult, 'nested'>> {
    // Taken off the watchdog before the release is sent: no renewal may follow it.
    if (!hold.markReleased()) return 'lost';
    this.#forget(hold);
    const answer = this.#releases.once(hold.grant, { keepFor: this.#parkingTime(hold), failed });
    return isPromiseLike(answer)
      ? answer.then((outcome) => this.#released(hold, outcome, failed))
      : this.#released(hold, answer, failed);
  }

  /** Renews the hold now, for `lease` ms from now on. */
  async extend(hold: Hold, lease: number): Promise<void> {
    hold.lease = lease;
    const outcome = await this.#watchdog.renew(hold);
    const error = hold.lostError;
    if (error) throw error;
    if (outcome === 'unknown') {
      throw new LockUnavailableError(
        `${nameOf(hold.subject)} could not be extended: the backend did not answer; it stays held for ${Math.round(hold.remaining())} ms.`,
        { key: hold.key, provider: this.name },
      );
    }
  }

  /** The end of the hold has moved. */
  reschedule(hold: Hold): void {
    this.#watchdog.reschedule(hold);
  }

  /** A question found that the machine was suspended: ask the backend whether the holds still stand. */
  confirmAll(): void {
    const suspensions = this.parts.suspension.observe();
    if (suspensions === this.#confirmedAfter) return;
    this.#confirmedAfter = suspensions;
    this.#watchdog.renewAll();
  }

  holdsOf(key: string): Hold[] {
    return [...this.#holds.values()].filter((hold) => hold.key === key);
  }

  get holds(): Iterable<Hold> {
    return this.#holds.values();
  }

  get waiting(): Iterable<Wish> {
    return [...this.#attempts.values()].map(({ acquisition }) => acquisition.wish);
  }

  /** Says once that the backend does not answer, until it has answered again. */
  reportUnavailable(cause: unknown): void {
    this.events.publish('unavailable', () => ({ provider: this.name, cause }));
    if (!this.#reachable) return;
    this.#reachable = false;
    const reason = cause instanceof Error ? `: ${cause.message}` : '';
    this.parts.logger.warn(`Lock provider "${this.name}" does not answer${reason}`);
  }

  // --- shutdown ---

  /** Sends waiters away: all, or those that hold nothing yet. */
  dismissWaiters(which: 'all' | 'first-comers', errorFor: (wish: Wish) => Error): void {
    for (const { acquisition } of [...this.#attempts.values()]) {
      const { wish } = acquisition;
      if (which === 'all' || !wish.nested) acquisition.dismiss(errorFor(wish));
    }
  }

  /** Resolves when nothing is held. */
  async idle(): Promise<void> {
    if (this.#holds.size > 0) await new Promise<void>((resolve) => (this.#onceIdle = resolve));
  }

  /** Takes all locks away from their tasks and gives them back. */
  loseAll(reason: LossReason): void {
    for (const hold of [...this.#holds.values()]) hold.lose(reason);
  }

  inspect(key: string): ReturnType<NonNullable<LockProvider['inspect']>> | undefined {
    return this.#backend.inspect?.(key);
  }

  forceRelease(key: string): Promise<boolean> | undefined {
    return this.#backend.forceRelease?.(key);
  }

  check(): ReturnType<NonNullable<LockProvider['check']>> | undefined {
    return this.#backend.check?.();
  }

  #observe(event: ProviderEvent): void {
    switch (event.type) {
      case 'lost': {
        this.#holds.get(event.holder)?.lose('revoked', event.cause);
        const waiting = this.#attempts.get(event.holder);
        if (waiting) waiting.attempt.revoked = true;
        break;
      }
      case 'waiting': {
        const waiting = this.#attempts.get(event.holder);
        if (!waiting) break;
        this.events.publish('waiting', () => waiting.attempt.subject);
        waiting.acquisition.queued();
        break;
      }
      case 'unavailable':
        this.reportUnavailable(event.cause);
        break;
      case 'recovered':
        this.#reachable = true;
        this.#watchdog.renewAll();
        break;
    }
  }

  readonly #onLost = (hold: Hold, error: LockLostError): void => {
    this.#forget(hold);
    this.events.publish('lost', () => ({
      ...hold.subject,
      held: this.clock.now() - hold.grantedAt,
      reason: error.reason,
    }));
    this.parts.logger.warn(error.message);
    // Its id is dead from here on. What it may still hold would block others for a lease.
    this.#releases.send(hold.grant, { keepFor: this.#parkingTime(hold), failed: true }, hold.validUntil);
  };

  #forget(hold: Hold): void {
    this.#watchdog.remove(hold);
    this.#holds.delete(hold.grant.holder);
    if (this.#holds.size === 0) this.#onceIdle?.();
  }

  #released(hold: Hold, outcome: ReleaseOutcome, failed: boolean): Exclude<ReleaseResult, 'nested'> {
    const { subject } = hold;
    const held = this.clock.now() - hold.grantedAt;
    if (outcome === 'released') this.events.publish('released', () => ({ ...subject, held }));
    else if (outcome === 'lost') {
      this.events.publish('lost', () => ({ ...subject, held, reason: 'revoked' }));
      this.parts.logger.warn(`${nameOf(subject)} was not ours any more when it was released.`);
    } else {
      this.events.publish('unconfirmed', () => subject);
      const manner = { keepFor: this.#parkingTime(hold), failed };
      this.#releases.retry(hold.grant, manner, hold.validUntil);
      return 'unconfirmed';
    }
    return outcome;
  }

  #parkingTime(hold: Hold): number {
    return Math.max(0, hold.grantedAt + hold.terms.minHold - this.clock.now());
  }

  // An ask may be executed as late as its answer was due; then it holds for a lease.
  #orphanedUntil(attempt: Attempt): number {
    return this.clock.now() + Math.max(attempt.lease, attempt.minHold);
  }
}
