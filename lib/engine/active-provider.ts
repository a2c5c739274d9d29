import { LockConfigError, type LockLostError, LockUnavailableError, type LossReason } from '../lock/errors.js';
import { acquireChannel } from '../lock/lock-channels.js';
import type { LockEventPublisher } from '../lock/lock-events.js';
import type { ReleaseResult } from '../lock/lock.js';
import { Acquisition, type Ledger, type Wish } from './acquisition.js';
import { Attempt } from './attempt.js';
import type { Clock } from './clock.js';
import type { EngineParts } from './engine-parts.js';
import { Hold, lostError } from './hold.js';
import { HolderTable } from './holder-table.js';
import { LocalQueue } from './local-queue.js';
import type {
  Answer,
  Grant,
  LockCapabilities,
  LockProvider,
  Member,
  ProviderEvent,
  Random,
  ReleaseOutcome,
} from './lock-provider.js';
import { Reachability } from './reachability.js';
import { type Parting, Releases } from './releases.js';
import { nameOf } from './subject.js';
import { traceAcquisition, traceHold } from './tracing.js';
import { Waiters } from './waiters.js';
import { Watchdog } from './watchdog.js';

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
  readonly #backend: LocalQueue | LockProvider;
  readonly #reachability: Reachability;
  readonly #waiters: Waiters;
  readonly #holds = new HolderTable<Hold>();
  readonly #watchdog: Watchdog;
  readonly #releases: Releases;
  readonly #observers: ((event: ProviderEvent) => void)[] = [];
  #onceIdle: (() => void) | undefined;
  #confirmedAfter = 0;

  constructor(
    readonly name: string,
    private readonly provider: LockProvider,
    private readonly parts: EngineParts,
  ) {
    const { clock, random, events, logger, suspension } = parts;
    this.capabilities = provider.capabilities;
    this.clock = clock;
    this.random = random;
    this.events = events;
    this.#backend = provider.capabilities.queue === 'engine' ? new LocalQueue(provider) : provider;
    this.#reachability = new Reachability(name, events, logger);
    this.#waiters = new Waiters(parts.maxWaiters);
    const onUnavailable = (cause: unknown) => {
      this.failed(cause);
    };
    this.#releases = new Releases(this.#backend, clock, random, onUnavailable);
    this.#watchdog = new Watchdog(this.#holds, this.#backend, clock, suspension, this.#onRenewal, onUnavailable);
  }

  /** The class of the provider, for people. */
  get kind(): string {
    return this.provider.constructor.name;
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
        for (const observer of this.#observers) observer(event);
      },
    });
  }

  /** This provider as one that stands on it sees it. Each has holders of its own, so what is said of them concerns only one. */
  asMember(): Member {
    const { provider } = this;
    const backend = this.#backend;
    return {
      capabilities: provider.capabilities,
      acquire: (request) => backend.acquire(request),
      renew: (renewals) => backend.renew(renewals),
      release: (holder, manner) => backend.release(holder, manner),
      ...(provider.inspect && { inspect: provider.inspect.bind(provider) }),
      ...(provider.forceRelease && { forceRelease: provider.forceRelease.bind(provider) }),
      ...(provider.records && { records: provider.records }),
      observe: (listener) => this.#observers.push(listener),
    };
  }

  async stop(): Promise<void> {
    await this.#releases.close(LAST_RELEASES);
    await this.#backend.stop();
  }

  /** Takes the lock, waiting for it if the wish says so. @throws LockCapacityError when too many wait for it already. */
  take(wish: Wish, now: number): Answer<Hold> {
    if (!acquireChannel.hasSubscribers) return this.#take(wish, now);
    return traceAcquisition(wish.subject, () => this.#take(wish, now));
  }

  // --- what an acquisition does ---

  begin(acquisition: Acquisition): Attempt {
    const { subject, terms, deadline } = acquisition.wish;
    const attempt = new Attempt(this.random.id(), subject, terms, deadline, this.clock);
    this.#waiters.add({ attempt, acquisition });
    return attempt;
  }

  ask(attempt: Attempt, now: number): Answer<Grant | 'busy'> {
    attempt.suspensions = this.parts.suspension.recent(now);
    return this.#backend.acquire(attempt);
  }

  isCurrent(attempt: Attempt, now: number): boolean {
    return this.parts.suspension.recent(now) === attempt.suspensions;
  }

  waits(key: string, change: 1 | -1): void {
    this.#waiters.count(key, change);
  }

  end(attempt: Attempt): void {
    this.#waiters.remove(attempt);
  }

  hold(attempt: Attempt, grant: Grant, wish: Wish, now: number): Hold {
    this.end(attempt);
    this.answered();
    const { suspension } = this.parts;
    const hold = new Hold(
      wish.subject,
      grant,
      wish.terms,
      now,
      attempt.suspensions,
      this.clock,
      suspension,
      this.#onLost,
    );
    hold.endTrace = traceHold(wish.subject, grant.fencingToken);
    this.#holds.set(grant.holder, hold);
    this.#watchdog.added(hold);
    this.events.publish('acquired', () => ({
      ...wish.subject,
      waited: hold.grantedAt - wish.startedAt,
      fencingToken: grant.fencingToken,
    }));
    return hold;
  }

  abandon(attempt: Attempt, grant?: Grant): void {
    this.end(attempt);
    // An ask may be executed as late as its answer was due; then it holds for a lease.
    const orphanedUntil = this.clock.now() + Math.max(attempt.lease, attempt.minHold);
    this.#releases.send(grant ?? attempt, { keepUntil: 0, failed: true }, orphanedUntil);
  }

  inBackground(work: Promise<void>): void {
    this.#releases.track(work);
  }

  answered(): void {
    this.#reachability.answered();
  }

  failed(cause: unknown): void {
    this.#reachability.failed(cause);
  }

  holdsApart(key: string): boolean {
    for (const hold of this.#holds.values()) if (hold.key === key && !hold.hasContext && hold.isValid()) return true;
    return false;
  }

  // --- what a lock does ---

  /** Ends one entry into a hold, and the hold with the last. `failed`: its task failed, so a transaction beneath it is rolled back. */
  leave(hold: Hold, failed: boolean): Answer<ReleaseResult> {
    hold.entries -= 1;
    if (hold.entries > 0) return hold.lostError ? 'lost' : 'nested';
    // Taken off the watchdog before the release is sent: no renewal may follow it.
    if (!hold.markReleased()) return 'lost';
    this.#forget(hold);
    const parting = { keepUntil: hold.keepUntil, failed };
    return this.#releases.once(hold.grant, parting, (outcome) => this.#released(hold, outcome, parting));
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

  get holds(): readonly Hold[] {
    return this.#holds
      .values()
      .filter((hold) => hold.isValid())
      .sort((one, other) => one.grantedAt - other.grantedAt || (one.key < other.key ? -1 : 1));
  }

  get waiting(): readonly Wish[] {
    return this.#waiters.wishes;
  }

  // --- shutdown ---

  /** Sends waiters away: all, or those that hold nothing yet. */
  dismissWaiters(which: 'all' | 'first-comers', errorFor: (wish: Wish) => Error): void {
    this.#waiters.dismiss(which, errorFor);
  }

  get isIdle(): boolean {
    return this.#holds.size === 0;
  }

  /** Resolves when nothing is held. */
  async idle(): Promise<void> {
    if (!this.isIdle) await new Promise<void>((resolve) => (this.#onceIdle = resolve));
  }

  /** Takes all locks away from their tasks and gives them back. */
  loseAll(reason: LossReason): void {
    for (const hold of this.#holds.values()) hold.lose(reason);
  }

  inspect(key: string): ReturnType<NonNullable<LockProvider['inspect']>> | undefined {
    return this.provider.inspect?.(key);
  }

  forceRelease(key: string): Promise<boolean> | undefined {
    return this.provider.forceRelease?.(key);
  }

  check(): ReturnType<NonNullable<LockProvider['check']>> | undefined {
    return this.provider.check?.();
  }

  #take(wish: Wish, now: number): Answer<Hold> {
    this.#waiters.assertRoom(wish.subject);
    return new Acquisition(this, wish).start(now);
  }

  #observe(event: ProviderEvent): void {
    switch (event.type) {
      case 'lost': {
        this.#holds.get(event.holder)?.lose('revoked', event.cause);
        const waiting = this.#waiters.get(event.holder);
        if (waiting) waiting.attempt.revoked = true;
        break;
      }
      case 'waiting':
        this.answered();
        this.#waiters.get(event.holder)?.acquisition.queued();
        break;
      case 'unavailable':
        this.failed(event.cause);
        break;
      case 'recovered':
        this.answered();
        this.#watchdog.renewAll();
        break;
      case 'switched': {
        const { engine, epoch, reason } = event;
        this.events.publish('switched', () => ({ provider: this.name, engine, epoch, reason }));
        break;
      }
    }
  }

  readonly #onRenewal = (hold: Hold, isAnswered: boolean): void => {
    if (isAnswered) this.answered();
    this.events.publish(isAnswered ? 'renewed' : 'unrenewed', () => ({ ...hold.subject, remaining: hold.remaining() }));
  };

  readonly #onLost = (hold: Hold, error: LockLostError): void => {
    this.#forget(hold);
    this.#publishLost(hold, error);
    this.parts.logger.warn(error.message);
    // Its id is dead from here on. What it may still hold would block others for a lease.
    this.#releases.send(hold.grant, { keepUntil: hold.keepUntil, failed: true }, hold.validUntil);
  };

  #forget(hold: Hold): void {
    this.#holds.delete(hold.grant.holder);
    this.#watchdog.removed();
    if (this.isIdle) this.#onceIdle?.();
  }

  #released(hold: Hold, outcome: ReleaseOutcome, parting: Parting): ReleaseResult {
    const { subject } = hold;
    switch (outcome) {
      case 'released':
        hold.endTrace?.('released');
        this.events.publish('released', () => ({ ...subject, held: this.clock.now() - hold.grantedAt }));
        return 'released';
      case 'lost':
        this.#publishLost(hold, lostError(subject, 'revoked'));
        this.parts.logger.warn(`${nameOf(subject)} was not ours any more when it was released.`);
        return 'lost';
      case 'unknown':
        hold.endTrace?.('unconfirmed');
        this.events.publish('unconfirmed', () => subject);
        this.#releases.retry(hold.grant, parting, hold.validUntil);
        return 'unconfirmed';
    }
  }

  #publishLost(hold: Hold, error: LockLostError): void {
    const { reason } = error;
    hold.endTrace?.(error);
    this.events.publish('lost', () => ({ ...hold.subject, held: this.clock.now() - hold.grantedAt, reason }));
  }
}
