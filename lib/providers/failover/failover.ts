import type {
  AcquireRequest,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  Member,
  ProviderContext,
  ProviderEvent,
  ReleaseManner,
  ReleaseOutcome,
  Renewal,
  RenewOutcome,
} from '../../engine/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lock/errors.js';
import type { LockInfo } from '../../lock/lock-info.js';
import { AvailableSelector } from './available-selector.js';
import { EngineHealth, type EngineState } from './engine-health.js';
import type { Choice, EngineSelector } from './engine-selector.js';
import type { FailoverSettings } from './failover-options.js';
import { Placement, type PlacementTerms } from './placement.js';
import { StrictSelector } from './strict-selector.js';
import type { EngineSwitch, SwitchReason } from './switch-record.js';

/** What a failover provider knows about its engines. */
export interface FailoverState {
  /** The engine that grants locks, or `null` while that is not known. */
  readonly active: string | null;
  /** Grows with every switch. */
  readonly epoch: number;
  /** How each engine is doing, as this process sees it. */
  readonly engines: Readonly<Record<string, EngineState>>;
  /** The latest switches, oldest first. */
  readonly history: readonly EngineSwitch[];
}

/** Room for the tokens of one epoch: a hybrid clock in µs stays below until the year 2112, a czxid for 2^20 elections. */
const TOKENS_PER_EPOCH = 2n ** 52n;

/** A failover provider at work: from `start` to `stop`. */
export class Failover {
  readonly #health = new Map<string, EngineHealth>();
  readonly #selector: EngineSelector;
  /** By the id of the attempt, and by its id at the engine. */
  readonly #placements = new Map<string, Placement>();
  readonly #placed = new Map<string, Placement>();
  /** What an engine was to release and did not answer. */
  readonly #stranded = new Set<Placement>();

  constructor(
    private readonly settings: FailoverSettings,
    private readonly members: ReadonlyMap<string, Member>,
    private readonly capabilities: LockCapabilities,
    private readonly context: ProviderContext,
  ) {
    for (const name of settings.engines) {
      const health = new EngineHealth(name, this.#member(name), settings, context, (state) => {
        this.#onHealth(name, state);
      });
      this.#health.set(name, health);
      this.#member(name).observe((event) => {
        this.#observe(name, event);
      });
    }
    this.#selector = this.#makeSelector();
  }

  async start(): Promise<void> {
    for (const health of this.#health.values()) health.start();
    await this.#selector.start();
  }

  stop(): void {
    this.#selector.stop();
    for (const health of this.#health.values()) health.stop();
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const choice = this.#selector.choose();
    const placement = this.#place(request, choice);
    const health = this.#health.get(choice.engine);
    let answer: Grant | 'busy';
    try {
      answer = await this.#member(choice.engine).acquire(placement.request(request, this.#terms(request)));
      health?.succeeded();
    } catch (error) {
      health?.failed(error);
      throw error;
    }
    if (this.#placements.get(request.holder) !== placement) {
      // The engine of the application has given the attempt up meanwhile, and its release went ahead.
      if (answer !== 'busy') this.#discard(placement);
      return 'busy';
    }
    if (answer === 'busy') {
      this.#forget(placement);
      if (this.#selector.choose().epoch === choice.epoch) return 'busy';
      throw this.#overtaken();
    }
    const validUntil = this.#believe(placement, answer.validUntil);
    if (validUntil <= this.context.clock.now()) {
      this.#forget(placement);
      this.#discard(placement);
      throw this.#overtaken();
    }
    placement.grant = answer;
    placement.keptUntil = answer.validUntil;
    return {
      ...answer,
      holder: request.holder,
      fencingToken: this.#token(answer, choice),
      validUntil,
      lease: this.#isStrict ? this.settings.window : answer.lease,
    };
  }

  async renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    const placements = renewals.map(({ grant }) => this.#placements.get(grant.holder));
    const due = new Map<string, { renewal: Renewal; placement: Placement }[]>();
    const now = this.context.clock.now();
    renewals.forEach(({ lease }, index) => {
      const placement = placements[index];
      if (!placement?.grant || !this.#isDue(placement, now)) return;
      const ofEngine = due.get(placement.choice.engine) ?? [];
      const kept = this.#isStrict ? placement.grant.lease : lease;
      ofEngine.push({ renewal: { grant: placement.grant, lease: kept }, placement });
      due.set(placement.choice.engine, ofEngine);
    });
    const outcomes = new Map<Placement, RenewOutcome>();
    await Promise.all(
      [...due].map(async ([engine, ofEngine]) => {
        const answers = await this.#renewAt(
          engine,
          ofEngine.map(({ renewal }) => renewal),
        );
        ofEngine.forEach(({ placement }, index) => outcomes.set(placement, answers[index] ?? 'unknown'));
      }),
    );
    return placements.map((placement) => (placement ? this.#outcome(placement, outcomes.get(placement)) : 'lost'));
  }

  async release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    const placement = this.#placements.get(holder.holder);
    if (!placement) return 'lost';
    const outcome = await this.#member(placement.choice.engine).release(placement, manner);
    this.#stranded.delete(placement);
    if (outcome === 'unknown') this.#stranded.add(placement);
    else this.#forget(placement);
    return outcome;
  }

  async inspect(key: string): Promise<LockInfo | null> {
    return (await this.#member(this.#selector.choose().engine).inspect?.(key)) ?? null;
  }

  async forceRelease(key: string): Promise<boolean> {
    return (await this.#member(this.#selector.choose().engine).forceRelease?.(key)) ?? false;
  }

  check(): readonly Finding[] {
    const { engines, mode, record } = this.settings;
    if (mode === 'available') return [warning(`mode 'available' lets two processes hold one lock around a switch`)];
    const findings = engines.flatMap((name) => {
      const { fencing } = this.#member(name).capabilities;
      return fencing ? [] : [warning(`engine "${name}" has no fencing tokens, so there are none at all`)];
    });
    if (record !== undefined && engines.includes(record)) {
      findings.push(
        warning(
          `losing "${record}" stops all locks, since the record is kept there too; name a third provider as "record"`,
        ),
      );
    }
    return findings;
  }

  get state(): FailoverState {
    const { active, epoch, history } = this.#selector.position;
    const engines = Object.fromEntries([...this.#health].map(([name, { state }]) => [name, state]));
    return { active, epoch, engines, history };
  }

  switchTo(engine: string): Promise<void> {
    return this.#selector.switchTo(engine);
  }

  #makeSelector(): EngineSelector {
    const { settings, context } = this;
    const onSwitch = (choice: Choice, reason: SwitchReason | undefined) => {
      this.#onSwitch(choice, reason);
    };
    const records = settings.record === undefined ? undefined : this.#member(settings.record).records;
    return records === undefined
      ? new AvailableSelector(context, this.#health, onSwitch)
      : new StrictSelector(context, settings, records, this.#health, onSwitch);
  }

  /** The place of an attempt: the one it has, if that is of this epoch. */
  #place(attempt: Holder, choice: Choice): Placement {
    const known = this.#placements.get(attempt.holder);
    if (known?.choice.epoch === choice.epoch) return known;
    if (known) {
      this.#forget(known);
      this.#discard(known);
    }
    const placement = new Placement(attempt, choice, this.context.random.id());
    this.#placements.set(attempt.holder, placement);
    this.#placed.set(placement.holder, placement);
    return placement;
  }

  #forget(placement: Placement): void {
    this.#placed.delete(placement.holder);
    if (this.#placements.get(placement.attempt.holder) === placement) this.#placements.delete(placement.attempt.holder);
  }

  /** Gives back what nobody wants any more. An engine that does not answer is told when it does. */
  #discard(placement: Placement): void {
    const { engine } = placement.choice;
    const release = async () => this.#member(engine).release(placement, { keepFor: 0, failed: true });
    void release().then(
      (outcome) => {
        if (outcome === 'unknown') this.#stranded.add(placement);
      },
      () => this.#stranded.add(placement),
    );
  }

  #terms({ lease, renew, minHold }: AcquireRequest): PlacementTerms {
    return this.#isStrict ? { lease: this.settings.lease, renew: true, minHold: 0 } : { lease, renew, minHold };
  }

  /** Until when a lock is ours that its engine keeps until then. */
  #believe({ choice }: Placement, keptUntil: number): number {
    return Math.min(keptUntil, this.#selector.validUntil(choice.epoch));
  }

  #token({ fencingToken }: Grant, { epoch }: Choice): bigint | null {
    if (!this.capabilities.fencing || fencingToken === null) return null;
    return BigInt(epoch) * TOKENS_PER_EPOCH + fencingToken;
  }

  /** In strict mode most renewals prolong the belief alone: the engine is asked when a third of its lease is over. */
  #isDue({ grant, keptUntil, isDoubtful }: Placement, now: number): boolean {
    return !this.#isStrict || isDoubtful || now >= keptUntil - ((grant?.lease ?? 0) * 2) / 3;
  }

  async #renewAt(engine: string, renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    const health = this.#health.get(engine);
    try {
      const outcomes = await this.#member(engine).renew(renewals);
      if (outcomes.includes('unknown')) health?.failed(this.#silent(engine));
      else health?.succeeded();
      return outcomes;
    } catch (error) {
      health?.failed(error);
      return renewals.map(() => 'unknown');
    }
  }

  #outcome(placement: Placement, outcome: RenewOutcome | undefined): RenewOutcome {
    if (outcome === 'lost') return 'lost';
    if (outcome !== undefined && outcome !== 'unknown') {
      placement.keptUntil = outcome.validUntil;
      placement.isDoubtful = false;
    }
    // Also without an answer it is kept as long as it was.
    const validUntil = this.#believe(placement, placement.keptUntil);
    return validUntil > this.context.clock.now() ? { validUntil } : 'unknown';
  }

  #onSwitch({ epoch, engine }: Choice, reason: SwitchReason | undefined): void {
    for (const placement of this.#placements.values()) {
      if (placement.choice.epoch !== epoch && !placement.grant) placement.withdraw();
    }
    if (reason === undefined) return;
    const { name, logger } = this.context;
    logger.warn(`Lock provider "${name}" switched to "${engine}" (${reason}).`);
    this.context.emit({ type: 'switched', engine, epoch, reason });
  }

  #onHealth(engine: string, state: EngineState): void {
    const { name, logger } = this.context;
    if (state === 'down') logger.warn(`Lock provider "${name}": its engine "${engine}" does not answer.`);
    else {
      if (state === 'recovering') logger.warn(`Lock provider "${name}": its engine "${engine}" answers again.`);
      this.#tell(engine);
    }
    this.#selector.review();
  }

  #observe(engine: string, event: ProviderEvent): void {
    switch (event.type) {
      case 'lost':
      case 'waiting': {
        const placement = this.#placed.get(event.holder);
        if (placement) this.context.emit({ ...event, holder: placement.attempt.holder });
        break;
      }
      case 'unavailable':
        this.#health.get(engine)?.failed(this.#silent(engine, event.cause));
        break;
      case 'recovered':
        for (const placement of this.#placements.values()) {
          if (placement.choice.engine === engine) placement.isDoubtful = true;
        }
        this.context.emit(event);
        this.#tell(engine);
        break;
      case 'switched':
        break;
    }
  }

  /** Gives an engine that answers again back what it was not told. */
  #tell(engine: string): void {
    for (const placement of this.#stranded) {
      if (placement.choice.engine !== engine) continue;
      this.#stranded.delete(placement);
      this.#discard(placement);
    }
  }

  #member(name: string): Member {
    const member = this.members.get(name);
    if (member) return member;
    throw new LockConfigError(`Lock provider "${this.context.name}" has no engine "${name}".`);
  }

  get #isStrict(): boolean {
    return this.settings.mode === 'strict';
  }

  #silent(engine: string, cause?: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`The engine "${engine}" of lock provider "${name}" did not answer.`, {
      provider: name,
      cause,
    });
  }

  #overtaken(): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `Lock provider "${name}" switched its engine, or its time was over, when the answer came.`,
      {
        provider: name,
      },
    );
  }
}

function warning(message: string): Finding {
  return { severity: 'warning', message };
}
