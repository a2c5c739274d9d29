import type { FailoverState } from '../../api/failover-state.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  CasStore,
  Diagnostic,
  Grant,
  Holding,
  LockBackend,
  LockCapabilities,
  Member,
  RecordStore,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { commonCapabilities, timeoutsOf } from '../shared/members.js';
import { UNUSED } from '../shared/probe.js';
import { isRefusal } from '../../core/toolkit/retryable.js';
import { DenseSet } from '../../core/toolkit/dense-set.js';
import { promised } from '../../core/toolkit/promised.js';
import { SuspensionDetector } from '../../core/toolkit/suspension.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { type Epoch, Epochs, TOKENS_PER_EPOCH } from './epochs.js';
import { FailoverRequest } from './failover-request.js';
import type { FailoverSettings } from './failover-options.js';

/** How long to wait for a member's response to a renewal before reporting only the confirmation. */
const RENEWAL_TIMEOUTS_PER_WINDOW = 4;

/**
 * How long a member keeps a crashed process's lock, in ms. Long enough for two renewals, one every third of a window,
 * to fail.
 */
export function memberLease({ window }: FailoverSettings): number {
  return Math.max(2 * window, 10_000);
}

/**
 * Failover within one application. Each request goes to the member that is active at that time, and its release goes to
 * the same member. `Confirmation` explains why two members never grant at the same time.
 */
export class FailoverBackend implements LockBackend<FailoverRequest> {
  readonly capabilities: LockCapabilities;
  readonly commandTimeout: number | undefined;
  /** Records are stored by the `casStore`'s provider, because a switch would lose any stored in a member. */
  readonly records?: RecordStore;
  readonly #epochs: Epochs;
  readonly #suspension: SuspensionDetector;
  /** All requests that wait for or hold a lock. */
  readonly #requests = new DenseSet<FailoverRequest>();

  /** `members` contains exactly `settings.providers`, in that order; the provider checks this. */
  constructor(
    private readonly settings: FailoverSettings,
    private readonly context: BackendContext,
    private readonly members: ReadonlyMap<string, Member>,
    casStore: CasStore,
    records: RecordStore | undefined,
  ) {
    const all = [...members.values()];
    const { shared, fencing, maxLease, forceRelease } = commonCapabilities(all);
    this.capabilities = {
      ...{ shared, fencing, wideTokens: fencing, maxLease, forceRelease },
      // A switch preserves neither the queue order nor retained keys.
      ...{ fair: false, minHold: false },
      // All locks depend on the process's confirmations.
      lease: 'session',
    };
    if (records) this.records = records;
    const timeouts = timeoutsOf(all);
    this.commandTimeout = timeouts && Math.max(...timeouts);
    this.#suspension = new SuspensionDetector(context.clock);
    this.#epochs = new Epochs(context, settings, members, casStore, this.#suspension, (epoch) => {
      this.#withdrawOthers(epoch);
    });
    for (const [name, member] of members) {
      // Calls show whether the member is down, and a nested failover provider reports its own switches.
      member.observe(({ type }) => {
        if (type === 'recovered') this.#onMemberRecovered(name);
      });
    }
  }

  connect(): Promise<void> {
    return this.#epochs.connect();
  }

  close(): Promise<void> {
    return this.#epochs.close();
  }

  unansweredFor({ state }: AcquireRequest<FailoverRequest>): number {
    return state?.atMember.unansweredFor ?? 0;
  }

  heldBy({ state }: AcquireRequest<FailoverRequest>): Holding | null {
    return state?.atMember.heldBy ?? null;
  }

  acquire(request: AcquireRequest<FailoverRequest>): Promise<Grant | 'busy'> {
    return promised(() => this.#acquireFromMember(this.#requestFor(request)));
  }

  #acquireFromMember(own: FailoverRequest): Promise<Grant | 'busy'> {
    const { member } = own.epoch;
    const onAnswer = (answer: Grant | 'busy'): Grant | 'busy' => {
      // A busy result doesn't prove health: a caller that gives up gets one even if the server is silent.
      if (answer !== 'busy') member.health.succeeded();
      return this.#admit(own, answer);
    };
    const onFailure = (error: unknown): never => {
      member.notGranted(error);
      // If there is another member, report the lock as unavailable, so callers wait for the switch.
      if (!isRefusal(error) || !this.#epochs.hasOther(member)) throw error;
      throw new LockUnavailableError(error.message, { key: error.key, provider: error.provider, cause: error });
    };
    return own.acquire().then(onAnswer, onFailure);
  }

  /**
   * Most renewals only need a confirmation. The member's lease is renewed when a third of it has passed, or would pass
   * before the next renewal.
   */
  async renew(request: AcquireRequest<FailoverRequest>): Promise<RenewOutcome> {
    const suspensions = this.#suspension.observe();
    const own = request.state;
    if (own?.isOver !== false || !own.grant) return 'lost';
    // A lock's renewals may overlap. Each reports the time gained since it started.
    const { reportedUntil } = own;
    const outcome = this.#isDue(own, own.grant, suspensions)
      ? await this.#renewOnMember(own, own.grant, suspensions)
      : undefined;
    if (outcome === 'lost') return 'lost';
    // Wait for the next scheduled write. Renewals are as frequent as confirmations, so one write per renewal would
    // double the load.
    if (this.#heldUntil(own, this.context.clock.now()) <= reportedUntil) await this.#epochs.record.nextWrite();
    // If the member didn't respond, the lock's validity is unchanged, unless the machine was suspended in the meantime.
    if (typeof outcome !== 'object' && own.suspensions !== suspensions) return 'unknown';
    const validUntil = this.#heldUntil(own, this.context.clock.now());
    if (validUntil <= reportedUntil) return 'unknown';
    own.reportedUntil = validUntil;
    return { validUntil };
  }

  /**
   * Releases the lock on the member that received the request, even after a switch. The core repeats the release there
   * if it gets no response.
   */
  release(request: AcquireRequest<FailoverRequest>, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const own = request.state;
    if (own?.isOver !== false) return Promise.resolve('lost');
    // A request still in flight then sees that it was released.
    this.#forget(own);
    return own.atMember.release(options);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const epoch = this.#epochs.at(this.context.clock.now());
    const info = (await epoch.member.locking.inspect?.(key)) ?? null;
    return info && { ...info, fencingToken: this.#tokenOf(info.fencingToken, epoch) };
  }

  async forceRelease(key: string): Promise<boolean> {
    const { member } = this.#epochs.at(this.context.clock.now());
    const wasLocked = (await member.locking.forceRelease?.(key)) ?? false;
    // The core renews this process's locks on the key to detect the loss. Most renewals don't reach the member.
    for (const own of this.#requests.values()) if (own.key === key) own.isDoubtful = true;
    return wasLocked;
  }

  diagnose(): Promise<readonly Diagnostic[]> {
    const { providers, casStore } = this.settings;
    const messages = (['shared', 'fencing'] as const).flatMap((capability) => {
      const lacking = providers.filter((name) => !this.members.get(name)?.capabilities[capability]);
      if (lacking.length === 0 || lacking.length === providers.length) return [];
      const names = lacking.map((name) => `"${name}"`).join(', ');
      return [`No provider offers ${CAPABILITY_NAMES[capability]}, because they are not supported by ${names}.`];
    });
    if (providers.includes(casStore)) {
      messages.push(
        `If "${casStore}" is lost, no locks can be acquired, because it also stores the record. To survive the loss of any provider, use a third one as "casStore".`,
      );
    }
    return Promise.resolve(messages.map((message) => ({ severity: 'warning', message })));
  }

  /** The active provider, each provider's health, and the latest switches. */
  get state(): FailoverState {
    return this.#epochs.state;
  }

  /**
   * Makes a provider the active one for all processes. Locks on the previous one end within `window`. The provider
   * stays active until it fails or `switchTo` is called again; there is no automatic failback.
   *
   * @throws LockConfigError if the name is not in `providers`
   * @throws LockUnavailableError if the outcome of the switch is unknown
   */
  switchTo(provider: string): Promise<void> {
    return this.#epochs.switchTo(provider);
  }

  /** How many requests wait for or hold a lock, for leak tests. */
  get size(): number {
    return this.#requests.size;
  }

  #requestFor(request: AcquireRequest<FailoverRequest>): FailoverRequest {
    const now = this.context.clock.now();
    const epoch = this.#epochs.at(now);
    const known = request.state;
    if (known?.isOver === false) {
      if (known.epoch === epoch) return known;
      this.#releaseUnused(known);
    }
    const { context, settings } = this;
    const suspensions = this.#suspension.recent(now);
    // A released id must not be used again.
    const id = known === undefined ? request.id : context.random.id();
    const own = new FailoverRequest(request, epoch, id, memberLease(settings), suspensions);
    this.#requests.add(own);
    request.state = own;
    return own;
  }

  /** Decides whether a member's response still counts. */
  #admit(own: FailoverRequest, answer: Grant | 'busy'): Grant | 'busy' {
    const { epoch } = own;
    if (own.isOver) return 'busy';
    const now = this.context.clock.now();
    if (answer === 'busy') {
      this.#forget(own);
      // A switch may have removed the waiter from the queue.
      if (this.#epochs.at(now) !== epoch) throw this.#overtaken();
      return 'busy';
    }
    own.grant = answer;
    const validUntil = this.#heldUntil(own, now);
    // If the member's own lease has ended, the core repeats the request.
    if (validUntil <= now && own.atMember.validUntil > now) {
      this.#releaseUnused(own);
      throw this.#overtaken();
    }
    own.reportedUntil = validUntil;
    const { followers } = answer;
    const lease = Math.min(this.settings.window, answer.lease);
    return { fencingToken: this.#tokenOf(answer.fencingToken, epoch), validUntil, lease, followers };
  }

  #isDue({ atMember, isDoubtful, suspensions }: FailoverRequest, { lease }: Grant, known: number): boolean {
    if (isDoubtful || suspensions !== known) return true;
    return this.context.clock.now() >= atMember.validUntil - (lease * 2 + this.settings.window) / 3;
  }

  /** Limits the wait so the confirmation can still be reported in time. A later response still counts. */
  #renewOnMember(own: FailoverRequest, grant: Grant, suspensions: number): Promise<RenewOutcome> {
    let isLate = false;
    const answer = own.epoch.member.renew(own.atMember, grant.lease).then((outcome) => {
      if (typeof outcome === 'object') {
        own.isDoubtful = false;
        own.suspensions = suspensions;
      }
      if (isLate && outcome === 'lost') own.lost();
      return outcome;
    });
    return withTimeout(this.context.clock, this.settings.window / RENEWAL_TIMEOUTS_PER_WINDOW, answer, () => {
      isLate = true;
      return 'unknown';
    });
  }

  /** Releases a request that no caller uses. */
  #releaseUnused(own: FailoverRequest): void {
    this.#forget(own);
    void own.atMember.release(UNUSED);
  }

  #forget(own: FailoverRequest): void {
    this.#requests.delete(own);
    own.isOver = true;
  }

  /** How long this process certainly holds the lock: while the member keeps it and its epoch is confirmed. */
  #heldUntil({ atMember, epoch }: FailoverRequest, now: number): number {
    return Math.min(atMember.validUntil, this.#epochs.record.confirmationAt(now).validUntil(epoch.number));
  }

  /** Removes waiters from the queues of members that are no longer active. */
  #withdrawOthers(epoch: number): void {
    for (const own of this.#requests.values()) {
      if (own.epoch.number !== epoch && !own.grant) own.withdraw();
    }
  }

  #onMemberRecovered(name: string): void {
    for (const own of this.#requests.values()) {
      if (own.epoch.member.name === name) own.isDoubtful = true;
    }
    this.context.emit({ type: 'recovered' });
  }

  /** @throws LockConfigError if the member's token is too large */
  #tokenOf(token: bigint | null, { member, tokenBase }: Epoch): bigint | null {
    if (token === null || !this.capabilities.fencing) return null;
    if (token >= 0n && token < TOKENS_PER_EPOCH) return tokenBase + token;
    throw new LockConfigError(
      `Fencing token ${token} from lock provider "${member.name}" needs more than 52 bits, so it does not fit in an epoch. Use another provider.`,
      { provider: this.context.name },
    );
  }

  #overtaken(): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `Lock provider "${name}" switched to another provider, or could not confirm the current one, before the response arrived.`,
      { provider: name },
    );
  }
}

const CAPABILITY_NAMES = { shared: 'shared locks', fencing: 'fencing tokens' };
