import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  BackendEvent,
  CasStore,
  Diagnostic,
  Grant,
  Holder,
  LockBackend,
  LockCapabilities,
  Member,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { SuspensionDetector } from '../../core/toolkit/suspension.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import type { EpochRecord, ProviderSwitch, SwitchReason } from './epoch-record.js';
import { type Epoch, FailoverAttempt } from './failover-attempt.js';
import { FailoverMember, UNUSED } from './failover-member.js';
import type { FailoverSettings } from './failover-options.js';
import type { ProviderState } from './member-health.js';
import { SharedRecord } from './shared-record.js';
import { SwitchPolicy } from './switch-policy.js';

/** What a failover provider sees of its providers. */
export interface FailoverState {
  /** The provider that grants locks, or `null` while that is not known. */
  readonly active: string | null;
  /** Grows with every switch. */
  readonly epoch: number;
  /** The health of each provider, as this process sees it. */
  readonly providers: Readonly<Record<string, ProviderState>>;
  /** The latest switches, oldest first. */
  readonly history: readonly ProviderSwitch[];
}

/** Room for the tokens of one epoch: a hybrid clock in µs stays below until the year 2112, a czxid for 2^20 elections. */
const TOKENS_PER_EPOCH = 2n ** 52n;
// Reading the time since boot costs 1.4 µs, too much for each lock; it is counted in steps of 10 ms anyway.
const LOOK_FOR_SUSPENSION_EVERY = 10;

/** How long a member keeps the lock of a process that died, in ms: a renewal every third of a window can fail twice before it ends. */
export function memberLease({ window }: FailoverSettings): number {
  return Math.max(2 * window, 10_000);
}

/**
 * Failover in one application: each attempt goes to the member that grants when it asks, and back to that same member when it is
 * released. {@link Confirmation} holds the argument why no two members grant at the same time.
 */
export class FailoverBackend implements LockBackend {
  readonly capabilities: LockCapabilities;
  readonly #members: ReadonlyMap<string, FailoverMember>;
  readonly #record: SharedRecord;
  readonly #suspension: SuspensionDetector;
  readonly #byHolder = new Map<string, FailoverAttempt>();
  /** By the ids that the members know. */
  readonly #byMemberHolder = new Map<string, FailoverAttempt>();
  #epoch: Epoch | undefined;

  /** Checked by the provider: `members` are those of `settings.providers`, in their order. */
  constructor(
    private readonly settings: FailoverSettings,
    private readonly context: BackendContext,
    members: ReadonlyMap<string, Member>,
    casStore: CasStore,
    fencing: boolean,
  ) {
    this.capabilities = capabilitiesOf([...members.values()], fencing);
    this.#members = new Map(Array.from(members, ([name, member]) => [name, this.#observed(name, member)]));
    this.#suspension = new SuspensionDetector(context.clock, LOOK_FOR_SUSPENSION_EVERY);
    const health = new Map(Array.from(this.#members, ([name, member]) => [name, member.health]));
    const policy = new SwitchPolicy(context, settings, health);
    const onEpoch = (record: EpochRecord, reason: SwitchReason | undefined) => {
      this.#onEpoch(record, reason);
    };
    this.#record = new SharedRecord(context, settings, casStore, this.#suspension, policy, onEpoch);
  }

  async connect(): Promise<void> {
    const answered = Promise.all(Array.from(this.#members.values(), (member) => member.connect()));
    await this.#record.connect();
    if (!(await answered).includes(true)) {
      throw this.#unavailable(`cannot grant locks, because none of ${[...this.#members.keys()].join(', ')} answers`);
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#record.close(), ...Array.from(this.#members.values(), (member) => member.close())]);
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const now = this.context.clock.now();
    const attempt = this.#attemptFor(request, this.#epochAt(now), now);
    const answer = await attempt.epoch.member.acquire(attempt);
    return this.#admit(attempt, answer);
  }

  /**
   * Most renewals renew the confirmation alone. The member is asked when a third of its lease is over, or would be before the next
   * renewal.
   */
  async renew({ holder }: Grant): Promise<RenewOutcome> {
    const suspensions = this.#suspension.observe();
    const attempt = this.#byHolder.get(holder);
    if (!attempt?.grant) return 'lost';
    // Renewals of one lock may overlap, and each reports what was gained since it came.
    const { reportedUntil } = attempt;
    const outcome = this.#isDue(attempt, attempt.grant, suspensions)
      ? await this.#renewOnMember(attempt, attempt.grant, suspensions)
      : undefined;
    if (outcome === 'lost') return 'lost';
    // Scheduled writes are enough: renewals come as often as confirmations, and a write for each would double them.
    if (this.#validUntil(attempt) <= reportedUntil) await this.#record.nextWrite();
    // Without an answer of the member it is held as long as it was, unless the machine was suspended meanwhile.
    if (typeof outcome !== 'object' && attempt.suspensions !== suspensions) return 'unknown';
    const validUntil = this.#validUntil(attempt);
    if (validUntil <= reportedUntil) return 'unknown';
    attempt.reportedUntil = validUntil;
    return { validUntil };
  }

  /** On the member that was asked, also after a switch. The core repeats there what was not answered. */
  async release({ holder }: Holder, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const attempt = this.#byHolder.get(holder);
    if (!attempt) return 'lost';
    // An ask that is still in flight finds that it was released.
    this.#forget(attempt);
    return attempt.epoch.member.locking.release(attempt.grant ?? attempt, options);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const epoch = this.#epochAt(this.context.clock.now());
    const info = (await epoch.member.locking.inspect?.(key)) ?? null;
    return info && { ...info, fencingToken: this.#tokenOf(info.fencingToken, epoch) };
  }

  async forceRelease(key: string): Promise<boolean> {
    const { member } = this.#epochAt(this.context.clock.now());
    return (await member.locking.forceRelease?.(key)) ?? false;
  }

  diagnose(): Promise<readonly Diagnostic[]> {
    const { providers, casStore } = this.settings;
    const messages = (['shared', 'fencing'] as const).flatMap((capability) => {
      const lacking = providers.filter((name) => !this.#members.get(name)?.locking.capabilities[capability]);
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
    const { active = null, epoch = 0, history = [] } = this.#record.latest ?? {};
    const providers = Object.fromEntries(Array.from(this.#members, ([name, { health }]) => [name, health.state]));
    return { active, epoch, providers, history };
  }

  /**
   * Makes a provider the one that grants, for all processes. Locks of the one before end within `window`. It stays until it fails or
   * `switchTo` is called again; there is no failback by itself.
   *
   * @throws LockConfigError for a name that is not among `providers`
   * @throws LockUnavailableError when it is unknown whether it was switched
   */
  async switchTo(provider: string): Promise<void> {
    if (!this.#members.has(provider)) {
      const { name } = this.context;
      const names = [...this.#members.keys()].join(', ');
      throw new LockConfigError(
        `Lock provider "${name}" cannot switch to "${provider}": its providers are ${names}. Name one of these.`,
        { provider: name },
      );
    }
    await this.#record.switchTo(provider);
  }

  /** How many attempts are waiting or granted, for tests of leaks. */
  get size(): number {
    return this.#byMemberHolder.size;
  }

  /** @throws LockUnavailableError while no member may grant; nothing was sent then */
  #epochAt(now: number): Epoch {
    const confirmation = this.#record.confirmationAt(now);
    const { record, settlesAt } = confirmation;
    if (!record || now >= confirmation.validUntil(record.epoch)) {
      throw this.#unavailable('cannot confirm the record that its processes share', this.#record.cause);
    }
    const member = this.#members.get(record.active);
    if (!member) {
      throw this.#unavailable(
        `uses "${record.active}" in other processes, which is not among the providers of this process: name the same "providers" in all processes`,
      );
    }
    if (now < settlesAt) {
      throw this.#unavailable(
        `has switched to "${record.active}" and waits ${Math.ceil(settlesAt - now)} ms until the last locks from before have ended`,
      );
    }
    const { epoch: number } = record;
    if (this.#epoch?.number !== number) this.#epoch = { number, member, tokenBase: BigInt(number) * TOKENS_PER_EPOCH };
    return this.#epoch;
  }

  #attemptFor(request: AcquireRequest, epoch: Epoch, now: number): FailoverAttempt {
    const known = this.#byHolder.get(request.holder);
    if (known?.epoch === epoch) {
      known.askedAgain(request);
      return known;
    }
    if (known) this.#giveBack(known);
    const { context, settings } = this;
    const suspensions = this.#suspension.recent(now);
    const attempt = new FailoverAttempt(request, epoch, context.random.id(), memberLease(settings), suspensions);
    this.#byHolder.set(request.holder, attempt);
    this.#byMemberHolder.set(attempt.holder, attempt);
    return attempt;
  }

  /** What a member's answer is worth when it comes. */
  #admit(attempt: FailoverAttempt, answer: Grant | 'busy'): Grant | 'busy' {
    const { epoch, request } = attempt;
    if (answer !== 'busy') attempt.granted(answer);
    if (this.#byHolder.get(request.holder) !== attempt) {
      // Released while in flight, and that release may have arrived first.
      if (answer !== 'busy') this.#giveBack(attempt);
      return 'busy';
    }
    const now = this.context.clock.now();
    if (answer === 'busy') {
      this.#forget(attempt);
      // The waiter may have been taken out of the queue because of a switch.
      if (this.#epochAt(now) !== epoch) throw this.#overtaken();
      return 'busy';
    }
    const validUntil = this.#validUntil(attempt);
    if (validUntil <= now) {
      this.#giveBack(attempt);
      throw this.#overtaken();
    }
    attempt.reportedUntil = validUntil;
    const { key, holder, mode } = request;
    const lease = Math.min(this.settings.window, answer.lease);
    return { key, holder, mode, fencingToken: this.#tokenOf(answer.fencingToken, epoch), validUntil, lease };
  }

  #isDue({ isDoubtful, suspensions, keptUntil }: FailoverAttempt, { lease }: Grant, known: number): boolean {
    if (isDoubtful || suspensions !== known) return true;
    return this.context.clock.now() >= keptUntil - (lease * 2 + this.settings.window) / 3;
  }

  /** Waits only so long that the confirmation can still be reported in time. An answer that comes later still counts. */
  async #renewOnMember(attempt: FailoverAttempt, grant: Grant, suspensions: number): Promise<RenewOutcome> {
    let isLate = false;
    const answer = attempt.epoch.member.renew(grant, grant.lease).then((outcome) => {
      if (typeof outcome === 'object') attempt.renewed(outcome.validUntil, suspensions);
      if (isLate && outcome === 'lost') this.context.emit({ type: 'lost', holder: attempt.request.holder });
      return outcome;
    });
    const outcome = await withTimeout(this.context.clock, this.#record.timeout, answer);
    isLate = outcome === undefined;
    return outcome ?? 'unknown';
  }

  /** Releases what nobody uses. */
  #giveBack(attempt: FailoverAttempt): void {
    this.#forget(attempt);
    void attempt.epoch.member.locking.release(attempt.grant ?? attempt, UNUSED);
  }

  #forget(attempt: FailoverAttempt): void {
    this.#byMemberHolder.delete(attempt.holder);
    const { holder } = attempt.request;
    if (this.#byHolder.get(holder) === attempt) this.#byHolder.delete(holder);
  }

  #validUntil(attempt: FailoverAttempt): number {
    return attempt.validUntil(this.#record.confirmationAt(this.context.clock.now()));
  }

  #onEpoch({ epoch, active, history }: EpochRecord, reason: SwitchReason | undefined): void {
    for (const attempt of this.#byMemberHolder.values()) {
      if (attempt.epoch.number !== epoch && !attempt.grant) attempt.withdraw();
    }
    if (reason === undefined) return;
    const { name, logger } = this.context;
    const from = history.at(-1)?.from ?? '';
    logger.warn(`Lock provider "${name}" switches from "${from}" to "${active}" (${REASONS[reason]}).`);
    this.context.emit({ type: 'failover', to: active, epoch, reason });
  }

  #observed(name: string, locking: Member): FailoverMember {
    const member = new FailoverMember(name, locking, this.settings, this.context, (state) => {
      this.context.logger.warn(`Lock provider "${this.context.name}": provider "${name}" ${STATES[state]}.`);
      // Before the first write nobody acts on it.
      if (this.#record.latest) void this.#record.write();
    });
    locking.observe((event) => {
      this.#onMemberEvent(member, event);
    });
    return member;
  }

  #onMemberEvent(member: FailoverMember, event: BackendEvent): void {
    switch (event.type) {
      case 'lost':
      case 'waiting': {
        const attempt = this.#byMemberHolder.get(event.holder);
        if (attempt) this.context.emit({ ...event, holder: attempt.request.holder });
        break;
      }
      case 'recovered':
        for (const attempt of this.#byMemberHolder.values()) {
          if (attempt.epoch.member === member) attempt.isDoubtful = true;
        }
        this.context.emit(event);
        break;
      case 'unavailable':
        // Whether that matters is found by the callers that ask it.
        member.health.failed();
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

  /** No member was asked. */
  #unavailable(what: string, cause?: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" ${what}.`, { provider: name, cause, sent: false });
  }
}

const REASONS: Record<SwitchReason, string> = {
  failure: 'the provider before it does not answer',
  failback: 'it has been stable for long enough',
  manual: 'switchTo was called',
};

const STATES: Record<ProviderState, string> = {
  up: 'is up again',
  down: 'does not answer',
  recovering: 'answers again',
};

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
    queue: 'backend',
  };
}
