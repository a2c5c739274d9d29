import { LockConfigError } from '../api/errors.js';
import { acquireChannel } from './events/channels.js';
import type { LockEventPublisher } from './events/publisher.js';
import { Acquisition, type Ledger, type Wish } from './acquire/acquisition.js';
import { Attempt } from './acquire/attempt.js';
import type { Clock } from '../api/clock.js';
import type { EngineParts } from './engine-parts.js';
import type { Hold } from './hold/hold.js';
import { Holds } from './hold/holds.js';
import { LocalQueue } from './acquire/local-queue.js';
import type { Answer, Grant, LockCapabilities, LockProvider, Member, ProviderEvent } from '../api/lock-provider.js';
import type { Random } from '../api/random.js';
import { Reachability } from './events/reachability.js';
import { Releases } from './hold/releases.js';
import { traceAcquisition } from './events/tracing.js';
import { Waiters } from './acquire/waiters.js';

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
  /** What this process holds. */
  readonly holds: Holds;
  readonly #backend: LocalQueue | LockProvider;
  readonly #reachability: Reachability;
  readonly #waiters: Waiters;
  readonly #releases: Releases;
  readonly #observers: ((event: ProviderEvent) => void)[] = [];

  constructor(
    readonly name: string,
    private readonly provider: LockProvider,
    private readonly parts: EngineParts,
  ) {
    const { clock, random, events, logger } = parts;
    this.capabilities = provider.capabilities;
    this.clock = clock;
    this.random = random;
    this.events = events;
    this.#backend = provider.capabilities.queue === 'engine' ? new LocalQueue(provider) : provider;
    this.#reachability = new Reachability(name, events, logger, clock);
    this.#waiters = new Waiters(parts.maxWaiters);
    this.#releases = new Releases(this.#backend, clock, random, (cause) => {
      this.failed(cause);
    });
    this.holds = new Holds(this.#backend, parts, this.#reachability, this.#releases);
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
      renew: (grant, lease) => backend.renew(grant, lease),
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
    return traceAcquisition(wish.subject, wish.signal, () => this.#take(wish, now));
  }

  get waiting(): readonly Wish[] {
    return this.#waiters.wishes;
  }

  /** Sends waiters away: all, or those that hold nothing. */
  dismissWaiters(which: 'all' | 'first-comers', errorFor: (wish: Wish) => Error): void {
    this.#waiters.dismiss(which, errorFor);
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

  // --- what an acquisition does ---

  begin(acquisition: Acquisition): Attempt {
    const attempt = new Attempt(this.random.id(), acquisition.wish, this.clock);
    this.#waiters.add({ attempt, acquisition });
    return attempt;
  }

  ask(attempt: Attempt, now: number): Answer<Grant | 'busy'> {
    attempt.suspensions = this.parts.suspension.recent(now);
    return this.#backend.acquire(attempt);
  }

  isCurrent(attempt: Attempt): boolean {
    return this.parts.suspension.observeTogether() === attempt.suspensions;
  }

  waits(key: string, change: 1 | -1): void {
    this.#waiters.count(key, change);
  }

  queued(change: 1 | -1): void {
    this.parts.suspension.queued(change);
  }

  pauses(acquisition: Acquisition, pause: Promise<void>): Promise<void> {
    return this.#waiters.pauses(acquisition, pause);
  }

  end(attempt: Attempt): void {
    this.#waiters.remove(attempt);
  }

  hold(attempt: Attempt, grant: Grant, wish: Wish, now: number): Hold {
    this.end(attempt);
    this.answered(attempt.key);
    return this.holds.begin(wish, attempt, grant, now);
  }

  abandon(attempt: Attempt, grant?: Grant): void {
    this.end(attempt);
    // An ask may be executed as late as its answer was due; then it holds for a lease. One that was never sent is released only for
    // the queue of this process.
    const isLeft = attempt.mayBeKnown || grant !== undefined;
    const orphanedUntil = isLeft ? this.clock.now() + Math.max(attempt.lease, attempt.minHold) : -Infinity;
    this.#releases.send(grant ?? attempt, { keepUntil: 0, failed: true }, orphanedUntil);
  }

  inBackground(work: Promise<void>): void {
    this.#releases.track(work);
  }

  answered(key: string): void {
    this.#reachability.answered();
    this.#waiters.hurry(key);
  }

  failed(cause: unknown): void {
    this.#reachability.failed(cause);
  }

  holdsApart(key: string): boolean {
    return this.holds.hasApart(key);
  }

  #take(wish: Wish, now: number): Answer<Hold> {
    this.#waiters.assertRoom(wish.subject);
    return new Acquisition(this, wish).start(now);
  }

  #observe(event: ProviderEvent): void {
    switch (event.type) {
      case 'lost': {
        this.holds.revoke(event.holder, event.cause);
        const waiting = this.#waiters.get(event.holder);
        if (waiting) waiting.attempt.revoked = true;
        break;
      }
      case 'waiting': {
        const waiter = this.#waiters.get(event.holder);
        if (waiter) this.answered(waiter.attempt.key);
        else this.#reachability.answered();
        waiter?.acquisition.queued();
        break;
      }
      case 'unavailable':
        this.failed(event.cause);
        break;
      case 'recovered':
        this.#reachability.answered();
        this.holds.confirm();
        this.#releases.retryAll();
        break;
      case 'switched': {
        const { engine, epoch, reason } = event;
        this.events.publish('switched', () => ({ provider: this.name, engine, epoch, reason }));
        break;
      }
    }
  }
}
