import type { Clock } from '../api/clock.js';
import type {
  BackendContext,
  BackendEvent,
  Holder,
  LockBackend,
  LockCapabilities,
  LockProvider,
  Member,
} from '../api/lock-provider.js';
import type { Random } from '../api/random.js';
import { LocalQueue } from './acquire/local-queue.js';
import { wasSent } from './toolkit/retryable.js';
import { RetryPauses } from './acquire/retry-pauses.js';
import type { CoreParts } from './core-parts.js';
import type { LockEventPublisher } from './events/publisher.js';
import { DifferingLimits } from './events/differing-limits.js';
import { Reachability } from './events/reachability.js';
import { Registration } from './registration.js';
import { Holds } from './hold/holds.js';
import { Releases } from './hold/releases.js';
import type { SuspensionDetector } from './toolkit/suspension.js';

// How long shutdown waits for releases that were not answered yet, in ms. The leases of the rest end by themselves.
const LAST_RELEASES = 2_000;

/** What the core keeps for one provider of one application: its backend, what this process holds there, and the releases that are pending. */
export class ProviderCore {
  readonly clock: Clock;
  readonly random: Random;
  readonly events: LockEventPublisher;
  readonly suspension: SuspensionDetector;
  readonly backend: LockBackend;
  readonly capabilities: LockCapabilities;
  /** The class of the provider, for people. */
  readonly kind: string;
  /** The backend, with the local queue in front where it needs one. */
  readonly locks: LocalQueue | LockBackend;
  readonly holds: Holds;
  readonly releases: Releases;
  readonly pauses: RetryPauses;
  readonly differingLimits: DifferingLimits;
  readonly registration: Registration;
  readonly #reachability: Reachability;
  readonly #observers: ((event: BackendEvent, isLocal: boolean) => void)[] = [];

  /** @throws LockConfigError for members that the provider cannot be built on */
  constructor(
    readonly name: string,
    provider: LockProvider,
    parts: CoreParts,
    member: BackendContext['member'],
  ) {
    const { namespace, instance, clock, random, events, logger, suspension } = parts;
    this.clock = clock;
    this.random = random;
    this.events = events;
    this.suspension = suspension;
    this.kind = provider.constructor.name;
    let queue: LocalQueue | undefined;
    const emit = (event: BackendEvent) => {
      if (queue) queue.forward(event);
      else this.#onEvent(event, false);
    };
    this.backend = provider.createBackend({ name, namespace, instance, clock, random, logger, member, emit });
    this.registration = new Registration(this.backend, clock);
    this.capabilities = this.backend.capabilities;
    if (this.capabilities.queue === 'local') {
      queue = new LocalQueue(this.backend, (event, isLocal) => {
        this.#onEvent(event, isLocal);
      });
    }
    this.locks = queue ?? this.backend;
    this.#reachability = new Reachability(name, events, logger, clock);
    this.pauses = new RetryPauses(clock);
    this.differingLimits = new DifferingLimits(events, logger);
    this.releases = new Releases(this.locks, clock, random, this.#reachability);
    this.holds = new Holds(this.locks, parts, this.#reachability, this.releases);
  }

  /** Calls `listener` with what the backend or (`isLocal`) the local queue reports, after the core has handled it. */
  observe(listener: (event: BackendEvent, isLocal: boolean) => void): void {
    this.#observers.push(listener);
  }

  /** The backend has answered an ask for the key: the callers that pause before they ask for it again ask now. */
  answered(key: string): void {
    this.#reachability.answered();
    this.pauses.hurry(key);
  }

  /** The backend has not answered. */
  failed(cause: unknown): void {
    this.#reachability.failed(cause);
  }

  async close(): Promise<void> {
    this.registration.end();
    await this.releases.close(LAST_RELEASES);
    await this.backend.close();
  }

  /** This provider as one that is built on it sees it. Each has holders of its own, so what is reported of them concerns only one. */
  asMember(): Member {
    const { backend, locks, releases, clock } = this;
    // Whether an ask that failed may have reached the server. One that did not has left nothing there, and is released only for the local
    // queue.
    const failed = new WeakMap<Holder, 'sent' | 'unsent'>();
    const longestLeases = new WeakMap<Holder, number>();
    return {
      capabilities: this.capabilities,
      acquire: async (request) => {
        // It may arrive this time.
        if (failed.get(request) === 'unsent') failed.delete(request);
        try {
          return await locks.acquire(request);
        } catch (error) {
          if (wasSent(error)) failed.set(request, 'sent');
          else if (!failed.has(request)) failed.set(request, 'unsent');
          throw error;
        }
      },
      renew: (grant, lease) => {
        longestLeases.set(grant, Math.max(lease, longestLeases.get(grant) ?? grant.lease));
        return locks.renew(grant, lease);
      },
      release: (lock, options) => {
        const { keepFor } = options;
        const now = clock.now();
        const isLeft = 'fencingToken' in lock || failed.get(lock) !== 'unsent';
        const until = isLeft ? now + Math.max(longestLeases.get(lock) ?? lock.lease, keepFor) : now;
        const terms = { keepUntil: keepFor === 0 ? 0 : now + keepFor, failed: options.failed };
        return releases.send(lock, terms, until);
      },
      ...(backend.inspect && { inspect: backend.inspect.bind(backend) }),
      ...(backend.forceRelease && { forceRelease: backend.forceRelease.bind(backend) }),
      ...(backend.casStore && { casStore: backend.casStore }),
      observe: (listener) => {
        this.observe(listener);
      },
    };
  }

  #onEvent(event: BackendEvent, isLocal: boolean): void {
    switch (event.type) {
      case 'lost':
        this.holds.revoke(event.holder, event.cause);
        break;
      case 'waiting':
        if (!isLocal) this.#reachability.answered();
        break;
      case 'unavailable':
        this.failed(event.cause);
        break;
      case 'recovered':
        this.#reachability.answered();
        this.holds.confirm();
        this.releases.retryAll();
        this.registration.renew();
        break;
      case 'failover': {
        const { to, epoch, reason } = event;
        this.events.publish('failover', () => ({ provider: this.name, to, epoch, reason }));
        break;
      }
    }
    for (const observer of this.#observers) observer(event, isLocal);
  }
}
