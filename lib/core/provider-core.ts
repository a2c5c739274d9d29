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

// How long shutdown waits for releases that were not answered yet, in ms. The leases of the rest end by themselves.
const LAST_RELEASES = 2_000;

/** A job that this process can run, for operators. */
export interface LocalJob {
  /** The tick after this time, if it is known here when the job is due. */
  nextTick(time: number): number | undefined;
  /** Runs it without a tick. Resolves to whether it ran: not while its lock is busy. @throws what it throws */
  runNow(): Promise<boolean>;
}

/** One provider of one application: its backend, the locks that this process holds there, and the releases that are pending. */
export class ProviderCore {
  readonly clock: Clock;
  readonly random: Random;
  readonly events: LockEventPublisher;
  readonly logger: LockLogger;
  readonly suspension: SuspensionDetector;
  readonly backend: LockBackend;
  readonly capabilities: LockCapabilities;
  /** The class of the provider, for people. */
  readonly kind: string;
  /** This application. */
  readonly instance: Instance;
  /** The jobs that have ticks in this application, by their keys. */
  readonly jobs = new Map<string, LocalJob>();
  /** The locks that this process holds. */
  readonly watchdog: Watchdog;
  /** The callers that wait, by key. */
  readonly queues: KeyQueues;
  readonly releases: Releases;
  /** The locks that composite providers hold on this provider, if any is built on it. */
  memberRequests: MemberRequests | undefined;
  /** Callers that hold, or whose release was neither answered nor has failed once: it may commit what a task has written. A drain waits for them. */
  readonly holders = new WaitGroup();
  readonly registration: Registration;
  readonly reachability: Reachability;
  /** Learns what happens to its callers. */
  readonly observer: LockObserver;
  /** The names of the providers that this one is built on. */
  readonly members: readonly string[];
  readonly #observers: ((event: BackendEvent) => void)[] = [];

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

  /** Calls `listener` with what the backend reports, after the core has handled it. */
  observe(listener: (event: BackendEvent) => void): void {
    this.#observers.push(listener);
  }

  async close(): Promise<void> {
    this.registration.stop();
    this.observer.stop();
    await this.releases.close(LAST_RELEASES);
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
