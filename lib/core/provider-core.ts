import type { Clock } from '../api/clock.js';
import type {
  BackendContext,
  BackendEvent,
  Instance,
  LockBackend,
  LockCapabilities,
  LockProvider,
} from '../api/lock-provider.js';
import type { Random } from '../api/random.js';
import type { LockLogger } from '../api/logger.js';
import type { CoreParts } from './core-parts.js';
import type { LockEventPublisher } from './events/publisher.js';
import { Reachability } from './events/reachability.js';
import type { MemberRequests } from './member/member-requests.js';
import { Registration } from './registration.js';
import { Releases } from './hold/releases.js';
import { KeyQueues } from './acquire/key-queues.js';
import type { LockObserver } from './acquire/lock-observer.js';
import { LockInsight } from './insight/lock-insight.js';
import { Watchdog } from './hold/watchdog.js';
import { WaitGroup } from './toolkit/wait-group.js';
import type { SuspensionDetector } from './toolkit/suspension.js';

// How long a shutdown waits for unanswered releases. After that, the remaining leases expire on the server.
const LAST_RELEASES_MS = 2_000;

/** A job that this process can run on behalf of an operator. */
export interface LocalJob {
  /** The next tick after this time; `undefined` if this process does not know the job's schedule. */
  nextTick(time: number): number | undefined;
  /** Runs the job without a tick. Resolves to false if its lock is busy. @throws whatever the job throws */
  runNow(): Promise<boolean>;
}

/** An application's provider: its backend, the locks that this process holds there, and pending releases. */
export class ProviderCore {
  /** Unless noted, times and deadlines in the core come from `clock.now()`, which is monotonic, in ms. */
  readonly clock: Clock;
  readonly random: Random;
  readonly events: LockEventPublisher;
  readonly logger: LockLogger;
  readonly suspension: SuspensionDetector;
  readonly backend: LockBackend;
  readonly capabilities: LockCapabilities;
  /** The class name of the provider, for display. */
  readonly kind: string;
  readonly instance: Instance;
  /** The application's jobs that have ticks, by key. */
  readonly jobs = new Map<string, LocalJob>();
  /** Tracks all of this process's grants. */
  readonly watchdog: Watchdog;
  readonly queues: KeyQueues;
  readonly releases: Releases;
  /** The locks that composite providers hold on this provider. Undefined if no composite uses it. */
  memberRequests: MemberRequests | undefined;
  /**
   * Holders and releases whose first attempt is in flight. A drain waits for both, because that attempt may commit a
   * task's writes.
   */
  readonly holders = new WaitGroup();
  readonly registration: Registration;
  readonly reachability: Reachability;
  readonly observer: LockObserver;
  /** The names of the providers that this one is built on. */
  readonly members: readonly string[];
  readonly #observers: ((event: BackendEvent) => void)[] = [];

  /** @throws LockConfigError if the provider cannot be built on its members */
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
    this.logger = logger;
    this.suspension = suspension;
    this.kind = provider.constructor.name;
    this.members = provider.members ?? [];
    this.instance = instance;
    const emit = (event: BackendEvent) => {
      this.#onEvent(event);
    };
    this.backend = provider.createBackend({ name, namespace, instance, clock, random, logger, member, emit });
    this.registration = new Registration(this.backend, clock);
    this.capabilities = this.backend.capabilities;
    this.reachability = new Reachability(name, events, logger, clock);
    this.releases = new Releases(this.backend, clock, random, this.reachability);
    this.watchdog = new Watchdog(this.backend, clock, suspension);
    this.queues = new KeyQueues(this);
    this.observer = new LockInsight(this, parts.insight);
  }

  /** Calls `listener` with each backend event after the core has handled it. */
  observe(listener: (event: BackendEvent) => void): void {
    this.#observers.push(listener);
  }

  async close(): Promise<void> {
    this.registration.stop();
    this.observer.stop();
    await this.releases.close(LAST_RELEASES_MS);
    await this.backend.close();
  }

  #onEvent(event: BackendEvent): void {
    switch (event.type) {
      case 'unavailable':
        this.reachability.failed(event.cause);
        break;
      case 'recovered':
        this.reachability.answered();
        this.watchdog.renewAll();
        this.releases.recovered();
        this.registration.renew();
        this.queues.retryNow();
        break;
      case 'failover': {
        const { to, epoch, reason } = event;
        this.events.publish('failover', { provider: this.name, to, epoch, reason });
        break;
      }
    }
    for (const observer of this.#observers) observer(event);
  }
}
