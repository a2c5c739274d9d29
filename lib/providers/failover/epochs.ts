import type { FailoverState, ProviderState, SwitchReason } from '../../api/failover-state.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { BackendContext, CasStore, Member } from '../../api/lock-provider.js';
import type { SuspensionDetector } from '../../core/toolkit/suspension.js';
import type { EpochRecord } from './epoch-record.js';
import { FailoverMember } from './failover-member.js';
import type { FailoverSettings } from './failover-options.js';
import { SharedRecord } from './shared-record.js';
import { SwitchPolicy } from './switch-policy.js';

/** A period during which one member grants locks. */
export interface Epoch {
  readonly number: number;
  readonly member: FailoverMember;
  /** Added to the member's fencing tokens. */
  readonly tokenBase: bigint;
}

/**
 * The number of tokens per epoch: enough for a hybrid clock in µs until the year 2112, or a czxid after 2^20 elections.
 */
export const TOKENS_PER_EPOCH = 2n ** 52n;

/** Determines which member grants locks, based on the shared record and member health. */
export class Epochs {
  readonly record: SharedRecord;
  /** In order of preference. */
  readonly #members: ReadonlyMap<string, FailoverMember>;
  #current: Epoch | undefined;

  constructor(
    private readonly context: BackendContext,
    settings: FailoverSettings,
    members: ReadonlyMap<string, Member>,
    casStore: CasStore,
    suspension: SuspensionDetector,
    /** Called with the number of each epoch that this process starts or learns of. */
    private readonly onBegin: (epoch: number) => void,
  ) {
    const observed = (name: string, member: Member) =>
      new FailoverMember(name, member, settings, context, (state) => {
        this.#onHealth(name, state);
      });
    this.#members = new Map(Array.from(members, ([name, member]) => [name, observed(name, member)]));
    const health = new Map(Array.from(this.#members, ([name, member]) => [name, member.health]));
    const policy = new SwitchPolicy(context, settings, health);
    const onEpoch = (record: EpochRecord, reason: SwitchReason | undefined) => {
      this.#onEpoch(record, reason);
    };
    this.record = new SharedRecord(context, settings, casStore, suspension, policy, onEpoch);
  }

  /** @throws LockUnavailableError if no member responds or the record can't be written */
  async connect(): Promise<void> {
    const answered = Promise.all(Array.from(this.#members.values(), (member) => member.connect()));
    await this.record.connect();
    if (!(await answered).includes(true)) {
      throw this.#unavailable(`cannot grant locks, because none of ${this.#names} responds`);
    }
  }

  /** Whether another member could be used instead. */
  hasOther(member: FailoverMember): boolean {
    return [...this.#members.values()].some((each) => each !== member && each.health.state !== 'down');
  }

  async close(): Promise<void> {
    await Promise.all([this.record.close(), ...Array.from(this.#members.values(), (member) => member.close())]);
  }

  /**
   * The epoch in which locks are granted. @throws LockUnavailableError while no member may grant locks; nothing has
   * been sent
   */
  at(now: number): Epoch {
    const confirmation = this.record.recentConfirmation(now);
    const { record, settlesAt } = confirmation;
    if (!record || now >= confirmation.validUntil(record.epoch)) {
      throw this.#unavailable('cannot confirm the record shared by its processes', this.record.cause);
    }
    const member = this.#members.get(record.active);
    if (!member) {
      throw this.#unavailable(
        `uses "${record.active}" in other processes, but this process does not list it. Use the same "providers" in all processes`,
      );
    }
    if (now < settlesAt) {
      throw this.#unavailable(
        `has switched to "${record.active}" and must wait another ${Math.ceil(settlesAt - now)} ms for earlier locks to end`,
      );
    }
    const { epoch: number } = record;
    if (this.#current?.number !== number) {
      this.#current = { number, member, tokenBase: BigInt(number) * TOKENS_PER_EPOCH };
    }
    return this.#current;
  }

  get state(): FailoverState {
    const { active = null, epoch = 0, history = [] } = this.record.latest ?? {};
    const providers = Object.fromEntries(Array.from(this.#members, ([name, { health }]) => [name, health.state]));
    return { active, epoch, providers, history };
  }

  /**
   * @throws LockConfigError for an unknown provider
   * @throws LockUnavailableError if the outcome of the switch is unknown
   */
  async switchTo(provider: string): Promise<void> {
    if (!this.#members.has(provider)) {
      const { name } = this.context;
      throw new LockConfigError(
        `Lock provider "${name}" cannot switch to "${provider}": its providers are ${this.#names}.`,
        { provider: name },
      );
    }
    await this.record.switchTo(provider);
  }

  #onHealth(name: string, state: ProviderState): void {
    this.context.logger.warn(`Lock provider "${this.context.name}": provider "${name}" ${STATES[state]}.`);
    // There's no record to report to before the first write.
    if (this.record.latest) void this.record.write();
  }

  #onEpoch({ epoch, active, history }: EpochRecord, reason: SwitchReason | undefined): void {
    this.onBegin(epoch);
    if (reason === undefined) return;
    const { name, logger } = this.context;
    const from = history.at(-1)?.from ?? '';
    logger.warn(`Lock provider "${name}" switched from "${from}" to "${active}" (${REASONS[reason]}).`);
    this.context.emit({ type: 'failover', to: active, epoch, reason });
  }

  get #names(): string {
    return [...this.#members.keys()].join(', ');
  }

  #unavailable(what: string, cause?: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" ${what}.`, { provider: name, cause, sent: false });
  }
}

const REASONS: Record<SwitchReason, string> = {
  failure: 'the previous provider is not responding, or rejects new locks',
  failback: 'it has been stable for long enough',
  manual: 'switchTo was called',
};

const STATES: Record<ProviderState, string> = {
  up: 'is up again',
  down: 'is not responding, or rejects new locks',
  recovering: 'grants locks again',
};
