import type {
  AcquireRequest,
  Answer,
  Grant,
  Holder,
  Member,
  ProviderContext,
  ProviderEvent,
  ReleaseManner,
  ReleaseOutcome,
  Renewal,
  RenewOutcome,
} from '../../engine/lock-provider.js';
import { SuspensionDetector } from '../../engine/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lock/errors.js';
import type { LockInfo } from '../../lock/lock-info.js';
import { AvailableSelector } from './available-selector.js';
import type { EngineState } from './engine-health.js';
import type { Choice, EngineSelector } from './engine-selector.js';
import { type DueRenewal, EngineRenewals } from './engine-renewals.js';
import { Engine } from './engine.js';
import { EpochTokens } from './epoch-tokens.js';
import type { FailoverSettings } from './failover-options.js';
import { Placement, type PlacementTerms } from './placement.js';
import { Placements } from './placements.js';
import { PATIENCE_PER_WINDOW, StrictSelector } from './strict-selector.js';
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

/** A failover provider at work, from `start` to `stop`: each attempt goes to the engine that grants when it asks. */
export class Failover {
  readonly #engines: ReadonlyMap<string, Engine>;
  readonly #selector: EngineSelector;
  readonly #placements = new Placements();
  readonly #suspension: SuspensionDetector;
  readonly #renewals: EngineRenewals;
  readonly #isStrict: boolean;
  /** Those of every lock; undefined where each has its own. */
  readonly #terms: PlacementTerms | undefined;
  /** Undefined where the engines give none. */
  readonly #tokens: EpochTokens | undefined;

  constructor(
    private readonly settings: FailoverSettings,
    members: ReadonlyMap<string, Member>,
    fencing: boolean,
    private readonly context: ProviderContext,
  ) {
    this.#isStrict = settings.mode === 'strict';
    if (this.#isStrict) this.#terms = { lease: settings.lease, renew: true, minHold: 0 };
    if (fencing) this.#tokens = new EpochTokens(context.name);
    this.#suspension = new SuspensionDetector(context.clock);
    const patience = this.#isStrict ? settings.window / PATIENCE_PER_WINDOW : Infinity;
    this.#renewals = new EngineRenewals(patience, context);
    const listener = {
      changed: (engine: Engine) => {
        this.#changed(engine);
      },
      told: (engine: Engine, event: ProviderEvent) => {
        this.#told(engine, event);
      },
      forgotten: (placement: Placement) => {
        if (!placement.isSpent) this.#placements.delete(placement);
      },
    };
    this.#engines = new Map(
      settings.engines.map((name) => [name, new Engine(name, the(name, members), settings, context, listener)]),
    );
    const onSwitch = (choice: Choice, reason: SwitchReason | undefined) => {
      this.#switched(choice, reason);
    };
    const records = settings.record === undefined ? undefined : the(settings.record, members).records;
    this.#selector = records
      ? new StrictSelector(context, settings, records, this.#engines, onSwitch)
      : new AvailableSelector(context, this.#engines, onSwitch);
  }

  async start(): Promise<void> {
    const answered = Promise.all([...this.#engines.values()].map((engine) => engine.start()));
    await this.#selector.start();
    if (!(await answered).includes(true)) throw this.#unavailable('has no engine that answers');
  }

  async stop(): Promise<void> {
    await Promise.all([this.#selector.stop(), ...[...this.#engines.values()].map((engine) => engine.stop())]);
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    const now = this.context.clock.now();
    const placement = this.#place(request, this.#selector.choose(now), now);
    return placement.engine.acquire(placement, this.#admit);
  }

  async renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    const suspensions = this.#suspension.observe();
    const placements = renewals.map(({ grant }) => this.#placements.of(grant.holder));
    const due = new Map<Engine, DueRenewal[]>();
    renewals.forEach(({ lease }, index) => {
      const placement = placements[index];
      if (!placement?.grant || !this.#isDue(placement, suspensions)) return;
      const ofEngine = due.get(placement.engine) ?? [];
      const { grant } = placement;
      ofEngine.push({ placement, renewal: { grant, lease: this.#isStrict ? grant.lease : lease } });
      due.set(placement.engine, ofEngine);
    });
    const outcomes = await this.#renewals.send(due, suspensions);
    const now = this.context.clock.now();
    const isNews = placements.every(
      (placement) => !placement || this.#believe(placement, now) > placement.believedUntil,
    );
    const isConfirmed = isNews || (await this.#selector.confirm());
    return placements.map((placement) =>
      placement ? this.#renewed(placement, outcomes.get(placement), suspensions, isConfirmed) : 'lost',
    );
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    const placement = this.#placements.of(holder.holder);
    if (!placement) return 'lost';
    // Is not to be prolonged any more, nor believed if its grant is still under way. Nobody asks again for this attempt.
    placement.isReleased = true;
    placement.isSpent = false;
    return placement.engine.release(placement, manner);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const choice = this.#selector.choose(this.context.clock.now());
    const info = await the(choice.engine, this.#engines).member.inspect?.(key);
    return info ? { ...info, fencingToken: this.#token(info.fencingToken, choice) } : null;
  }

  async forceRelease(key: string): Promise<boolean> {
    const { engine } = this.#selector.choose(this.context.clock.now());
    return (await the(engine, this.#engines).member.forceRelease?.(key)) ?? false;
  }

  switchTo(engine: string): Promise<void> {
    return this.#selector.switchTo(engine);
  }

  get state(): FailoverState {
    const { active, epoch, history } = this.#selector.position;
    const engines = Object.fromEntries([...this.#engines].map(([name, { state }]) => [name, state]));
    return { active, epoch, engines, history };
  }

  /** How many attempts are somewhere, or were and were not given back yet; for tests of leaks. */
  get size(): number {
    return [...this.#engines.values()].reduce((sum, { strays }) => sum + strays, this.#placements.size);
  }

  /** The place of an attempt: the one it has, if that is of this epoch. */
  #place(attempt: AcquireRequest, choice: Choice, now: number): Placement {
    const known = this.#placements.of(attempt.holder);
    if (known?.choice === choice && !known.isSpent) {
      known.askedAgain(attempt);
      return known;
    }
    if (known?.isSpent) this.#placements.delete(known);
    else if (known) this.#drop(known);
    const holder = known ? this.context.random.id() : attempt.holder;
    const placement = new Placement(attempt, choice, the(choice.engine, this.#engines), holder, this.#terms ?? attempt);
    placement.suspensions = this.#suspension.recent(now);
    this.#placements.add(placement);
    return placement;
  }

  /** Gives back what nobody wants any more. */
  #drop(placement: Placement): void {
    this.#placements.delete(placement);
    this.#giveBack(placement);
  }

  #giveBack(placement: Placement): void {
    void placement.engine.release(placement, { keepFor: 0, failed: true });
  }

  /** What an engine's answer is worth by now. */
  readonly #admit = (placement: Placement, answer: Grant | 'busy'): Grant | 'busy' => {
    if (answer !== 'busy') placement.grant = answer;
    if (!this.#placements.has(placement) || placement.isReleased) {
      // The attempt was given up meanwhile, and its release may have gone ahead.
      if (answer !== 'busy') this.#drop(placement);
      return 'busy';
    }
    const { choice, attempt } = placement;
    const now = this.context.clock.now();
    if (answer === 'busy') {
      // Maybe sent away from its queue, of which the engine may be told late: that would free what was granted to the same id since.
      placement.isSpent = true;
      if (this.#selector.choose(now) !== choice) throw this.#overtaken();
      this.#placements.delete(placement);
      return 'busy';
    }
    placement.keptUntil = answer.validUntil;
    const validUntil = this.#believe(placement, now);
    if (validUntil <= now) {
      // Stays known: a release that is not answered is sent again, and would free what was granted to the same id since.
      placement.isSpent = true;
      this.#giveBack(placement);
      throw this.#overtaken();
    }
    placement.believedUntil = validUntil;
    return {
      key: attempt.key,
      holder: attempt.holder,
      mode: attempt.mode,
      fencingToken: this.#token(answer.fencingToken, choice),
      validUntil,
      lease: this.#isStrict ? Math.min(this.settings.window, answer.lease) : answer.lease,
    };
  };

  /** Until when a lock is ours that its engine keeps until then. */
  #believe({ choice, keptUntil }: Placement, now: number): number {
    return Math.min(keptUntil, this.#selector.validUntil(choice.epoch, now));
  }

  #token(token: bigint | null, choice: Choice): bigint | null {
    return token === null ? null : (this.#tokens?.tokenOf(token, choice) ?? null);
  }

  /**
   * In strict mode most renewals prolong the belief alone: the engine is asked when a third of its lease is over, or would
   * be before the next renewal comes.
   */
  #isDue({ grant, keptUntil, isDoubtful, suspensions }: Placement, known: number): boolean {
    if (!this.#isStrict || isDoubtful || suspensions !== known) return true;
    const { lease = 0 } = grant ?? {};
    return this.context.clock.now() >= keptUntil - (lease * 2 + this.settings.window) / 3;
  }

  #renewed(
    placement: Placement,
    outcome: RenewOutcome | undefined,
    suspensions: number,
    isConfirmed: boolean,
  ): RenewOutcome {
    if (outcome === 'lost') return 'lost';
    // In strict mode it is kept also without an answer as long as it was, unless time has passed that no clock has counted.
    const isKept = typeof outcome === 'object' || (this.#isStrict && placement.suspensions === suspensions);
    if (!isKept) return 'unknown';
    const now = this.context.clock.now();
    const validUntil = this.#believe(placement, now);
    if (validUntil <= now) return 'unknown';
    // Nothing was gained. Called renewed it would be due again at once, and again, for as long as its engine is silent.
    if ((!isConfirmed || outcome === 'unknown') && validUntil <= placement.believedUntil) return 'unknown';
    placement.believedUntil = validUntil;
    return { validUntil };
  }

  #switched({ epoch, engine }: Choice, reason: SwitchReason | undefined): void {
    for (const placement of this.#placements) {
      if (placement.choice.epoch !== epoch && !placement.grant) placement.withdraw();
    }
    if (reason === undefined) return;
    const { name, logger } = this.context;
    logger.warn(`Lock provider "${name}" goes over to "${engine}" (${REASONS[reason]}).`);
    this.context.emit({ type: 'switched', engine, epoch, reason });
  }

  #changed({ name: engine, state }: Engine): void {
    const { name, logger } = this.context;
    logger.warn(`Lock provider "${name}": its engine "${engine}" ${STATES[state]}.`);
    this.#selector.review();
  }

  #told(engine: Engine, event: ProviderEvent): void {
    switch (event.type) {
      case 'lost':
      case 'waiting': {
        const placement = this.#placements.at(event.holder);
        if (placement) this.context.emit({ ...event, holder: placement.attempt.holder });
        break;
      }
      case 'recovered':
        for (const placement of this.#placements) if (placement.engine === engine) placement.isDoubtful = true;
        this.context.emit(event);
        break;
      // Whether an engine that does not answer matters is found out by those who ask it; the switches of an engine that
      // is a failover itself are its own.
      case 'unavailable':
      case 'switched':
        break;
    }
  }

  #overtaken(): LockUnavailableError {
    return this.#unavailable('had gone over to another engine, or could not confirm its own, when the answer came');
  }

  #unavailable(what: string): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" ${what}.`, { provider: name });
  }
}

const REASONS: Record<SwitchReason, string> = {
  failure: 'the one before does not answer',
  return: 'it has been stable for long enough',
  manual: 'by hand',
};

const STATES: Record<EngineState, string> = {
  up: 'is well',
  down: 'does not answer',
  recovering: 'answers again',
};

function the<T>(name: string, all: ReadonlyMap<string, T>): T {
  const found = all.get(name);
  if (found !== undefined) return found;
  throw new LockConfigError(`A FailoverProvider was not given its member "${name}".`);
}
