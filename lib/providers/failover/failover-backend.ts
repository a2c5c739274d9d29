import type { FailoverState } from '../../api/failover-state.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  BackendEvent,
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
import { timeoutsOf } from '../shared/members.js';
import { UNUSED } from '../shared/probe.js';
import { isRefusal } from '../../core/toolkit/retryable.js';
import { DenseSet } from '../../core/toolkit/dense-set.js';
import { promised } from '../../core/toolkit/promised.js';
import { SuspensionDetector } from '../../core/toolkit/suspension.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { type Epoch, Epochs, TOKENS_PER_EPOCH } from './epochs.js';
import { FailoverRequest } from './failover-request.js';
import type { FailoverSettings } from './failover-options.js';

/** How long the answer of a member to a renewal is waited for, before the confirmation is reported alone. */
const RENEWAL_TIMEOUTS_PER_WINDOW = 4;

/** How long a member keeps the lock of a process that died, in ms: a renewal every third of a window can fail twice before it ends. */
export function memberLease({ window }: FailoverSettings): number {
  return Math.max(2 * window, 10_000);
}

/**
 * Failover in one application: each request goes to the member that grants when it asks, and back to that same member when it is
 * released. `Confirmation` holds the argument why no two members grant at the same time.
 */
export class FailoverBackend implements LockBackend<FailoverRequest> {
  readonly capabilities: LockCapabilities;
  readonly commandTimeout: number | undefined;
  /** Those of the provider of the `casStore`: a switch would forget what is at a member. */
  readonly records?: RecordStore;
  readonly #epochs: Epochs;
  readonly #suspension: SuspensionDetector;
  /** Those that wait or hold. */
  readonly #requests = new DenseSet<FailoverRequest>();

  /** Checked by the provider: `members` are those of `settings.providers`, in their order. */
  constructor(
    private readonly settings: FailoverSettings,
    private readonly context: BackendContext,
    private readonly members: ReadonlyMap<string, Member>,
    casStore: CasStore,
    fencing: boolean,
    records: RecordStore | undefined,
  ) {
    this.capabilities = capabilitiesOf([...members.values()], fencing);
    if (records) this.records = records;
    const timeouts = timeoutsOf([...members.values()]);
    this.commandTimeout = timeouts && Math.max(...timeouts);
    this.#suspension = new SuspensionDetector(context.clock);
    this.#epochs = new Epochs(context, settings, members, casStore, this.#suspension, (epoch) => {
      this.#withdrawOthers(epoch);
    });
    for (const [name, member] of members) {
      member.observe((event) => {
        this.#onMemberEvent(name, event);
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
    return promised(() => this.#ask(this.#requestFor(request)));
  }

  #ask(own: FailoverRequest): Promise<Grant | 'busy'> {
    const { member } = own.epoch;
    const onAnswer = (answer: Grant | 'busy'): Grant | 'busy' => {
      // Every backend answers busy to a caller that leaves: the server may be silent.
      if (answer !== 'busy') member.health.succeeded();
      return this.#admit(own, answer);
    };
    const onFailure = (error: unknown): never => {
      member.notGranted(error);
      // Callers wait for the switch. Without another member there is none to come.
      if (!isRefusal(error) || !this.#epochs.hasOther(member)) throw error;
      throw new LockUnavailableError(error.message, { key: error.key, provider: error.provider, cause: error });
    };
    return own.acquire().then(onAnswer, onFailure);
  }

  /**
   * Most renewals renew the confirmation alone. The member is asked when a third of its lease is over, or would be before the next
   * renewal.
   */
  async renew(request: AcquireRequest<FailoverRequest>): Promise<RenewOutcome> {
    const suspensions = this.#suspension.observe();
    const own = request.state;
    if (own?.isOver !== false || !own.grant) return 'lost';
    // Renewals of one lock may overlap, and each reports what was gained since it came.
    const { reportedUntil } = own;
    const outcome = this.#isDue(own, own.grant, suspensions)
      ? await this.#renewOnMember(own, own.grant, suspensions)
      : undefined;
    if (outcome === 'lost') return 'lost';
    // Scheduled writes are enough: renewals come as often as confirmations, and a write for each would double them.
    if (this.#heldUntil(own, this.context.clock.now()) <= reportedUntil) await this.#epochs.record.nextWrite();
    // Without an answer of the member it is held as long as it was, unless the machine was suspended meanwhile.
    if (typeof outcome !== 'object' && own.suspensions !== suspensions) return 'unknown';
    const validUntil = this.#heldUntil(own, this.context.clock.now());
    if (validUntil <= reportedUntil) return 'unknown';
    own.reportedUntil = validUntil;
    return { validUntil };
  }

  /** On the member that was asked, also after a switch. The core repeats there what was not answered. */
  release(request: AcquireRequest<FailoverRequest>, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const own = request.state;
    if (own?.isOver !== false) return Promise.resolve('lost');
    // An ask that is still in flight finds that it was released.
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
    return (await member.locking.forceRelease?.(key)) ?? false;
  }

  diagnose(): Promise<readonly Diagnostic[]> {
    const { providers, casStore } = this.settings;
    const messages = (['shared', 'fencing'] as const).flatMap((capability) => {
      const lacking = providers.filter((name) => !this.members.get(name)?.capabilities[capability]);
      if (lacking.length === 0 || lacking.length === providers.length) return [];
      const names = lacking.map((name) => `"${name}"`).join(', ');
      return [`there are no ${CAPABILITY_NAMES[capability]} on any provider, because ${names} has none.`];
    });
    if (providers.includes(casStore)) {
      messages.push(
        `losing "${casStore}" stops all locks, because the record is stored there too: name a third provider as "casStore" to survive the loss of any one.`,
      );
    }
    return Promise.resolve(messages.map((message) => ({ severity: 'warning', message })));
  }

  /** The provider that grants, the health of each, and the latest switches. */
  get state(): FailoverState {
    return this.#epochs.state;
  }

  /**
   * Makes a provider the one that grants, for all processes. Locks of the one before end within `window`. It stays until it fails or
   * `switchTo` is called again; there is no failback by itself.
   *
   * @throws LockConfigError for a name that is not among `providers`
   * @throws LockUnavailableError when it is unknown whether it was switched
   */
  switchTo(provider: string): Promise<void> {
    return this.#epochs.switchTo(provider);
  }

  /** How many requests are waiting or granted, for tests of leaks. */
  get size(): number {
    return this.#requests.size;
  }

  #requestFor(request: AcquireRequest<FailoverRequest>): FailoverRequest {
    const now = this.context.clock.now();
    const epoch = this.#epochs.at(now);
    const known = request.state;
    if (known?.isOver === false) {
      if (known.epoch === epoch) return known;
      this.#giveBack(known);
    }
    const { context, settings } = this;
    const suspensions = this.#suspension.recent(now);
    // An id that was released is dead.
    const id = known === undefined ? request.id : context.random.id();
    const own = new FailoverRequest(request, epoch, id, memberLease(settings), suspensions);
    this.#requests.add(own);
    request.state = own;
    return own;
  }

  /** The answer of a member, as far as it counts when it comes. */
  #admit(own: FailoverRequest, answer: Grant | 'busy'): Grant | 'busy' {
    const { epoch } = own;
    if (own.isOver) return 'busy';
    const now = this.context.clock.now();
    if (answer === 'busy') {
      this.#forget(own);
      // The waiter may have been taken out of the queue because of a switch.
      if (this.#epochs.at(now) !== epoch) throw this.#overtaken();
      return 'busy';
    }
    own.grant = answer;
    const validUntil = this.#heldUntil(own, now);
    // The core repeats a request whose grant the member's lease outran.
    if (validUntil <= now && own.atMember.validUntil > now) {
      this.#giveBack(own);
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

  /** Waits only so long that the confirmation can still be reported in time. An answer that comes later still counts. */
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

  /** Releases what nobody uses. */
  #giveBack(own: FailoverRequest): void {
    this.#forget(own);
    void own.atMember.release(UNUSED);
  }

  #forget(own: FailoverRequest): void {
    this.#requests.delete(own);
    own.isOver = true;
  }

  #heldUntil(own: FailoverRequest, now: number): number {
    return own.heldUntil(this.#epochs.record.confirmationAt(now));
  }

  /** Waiters of a member that grants no more leave its queue. */
  #withdrawOthers(epoch: number): void {
    for (const own of this.#requests.values()) {
      if (own.epoch.number !== epoch && !own.grant) own.withdraw();
    }
  }

  #onMemberEvent(name: string, event: BackendEvent): void {
    switch (event.type) {
      case 'recovered':
        for (const own of this.#requests.values()) {
          if (own.epoch.member.name === name) own.isDoubtful = true;
        }
        this.context.emit(event);
        break;
      case 'unavailable':
        // Whether that matters is found by the callers that ask it.
        break;
      case 'failover':
        // The switches of a member that is a failover itself are its own.
        break;
    }
  }

  /** @throws LockConfigError for a token of the member that is not below those of the next epoch */
  #tokenOf(token: bigint | null, { member, tokenBase }: Epoch): bigint | null {
    if (token === null || !this.capabilities.fencing) return null;
    if (token >= 0n && token < TOKENS_PER_EPOCH) return tokenBase + token;
    throw new LockConfigError(
      `The fencing token ${token} of lock provider "${member.name}" takes more than 52 bits, so it does not fit between the tokens of two epochs: use another provider.`,
      { provider: this.context.name },
    );
  }

  #overtaken(): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `Lock provider "${name}" had switched to another provider, or could not confirm its own, when the answer came.`,
      { provider: name },
    );
  }
}

const CAPABILITY_NAMES = { shared: 'shared locks', fencing: 'fencing tokens' };

function capabilitiesOf(members: readonly Member[], fencing: boolean): LockCapabilities {
  const all = members.map(({ capabilities }) => capabilities);
  return {
    shared: all.every(({ shared }) => shared),
    // A switch loses the order.
    fair: false,
    fencing,
    wideTokens: fencing,
    // The confirmations bound all locks alike.
    lease: 'session',
    maxLease: Math.min(...all.map(({ maxLease = Infinity }) => maxLease)),
    // A switch forgets retained keys.
    minHold: false,
    forceRelease: all.every(({ forceRelease }) => forceRelease),
  };
}
