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
  RenewOutcome,
} from '../../api/lock-provider.js';
import { SuspensionDetector } from '../../core/toolkit/suspension.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { Attempts } from './attempts.js';
import { AvailableSelector } from './available-selector.js';
import type { EngineState } from './engine-health.js';
import type { Choice, EngineSelector } from './engine-selector.js';
import { Engine } from './engine.js';
import { EpochTokens } from './epoch-tokens.js';
import type { FailoverSettings } from './failover-options.js';
import type { Placement } from './placement.js';
import { LockRenewals } from './lock-renewals.js';
import { Placements } from './placements.js';
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

/** A failover provider at work, from `start` to `stop`: each attempt goes to the engine that grants when it asks. */
export class Failover {
  readonly #engines: ReadonlyMap<string, Engine>;
  readonly #selector: EngineSelector;
  readonly #placements = new Placements();
  readonly #attempts: Attempts;
  readonly #renewals: LockRenewals;
  /** Undefined where the engines give none. */
  readonly #tokens: EpochTokens | undefined;

  constructor(
    settings: FailoverSettings,
    members: ReadonlyMap<string, Member>,
    fencing: boolean,
    private readonly context: ProviderContext,
  ) {
    if (fencing) this.#tokens = new EpochTokens(context.name);
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
    const suspension = new SuspensionDetector(context.clock);
    const engineOf = (name: string) => the(name, this.#engines);
    const [selector, placements, tokens] = [this.#selector, this.#placements, this.#tokens];
    this.#attempts = new Attempts(settings, context, selector, engineOf, placements, suspension, tokens);
    this.#renewals = new LockRenewals(settings, context, selector, placements, suspension);
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
    return this.#attempts.acquire(request);
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#renewals.renew(grant, lease);
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    return this.#attempts.release(holder, manner);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const choice = this.#selector.choose(this.context.clock.now());
    const info = await the(choice.engine, this.#engines).member.inspect?.(key);
    return info ? { ...info, fencingToken: this.#tokens?.tokenOf(info.fencingToken, choice) ?? null } : null;
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
