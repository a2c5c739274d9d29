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
import type { Timer } from '../../api/clock.js';
import { isPromiseLike } from '../../core/toolkit/answer.js';
import { LockError, type LockUnavailableError } from '../../api/errors.js';
import { EngineHealth, type EngineState, type HealthTerms } from './engine-health.js';
import { inTime } from './in-time.js';
import type { Placement } from './placement.js';

/** Told what an engine does unasked. */
export interface EngineListener {
  /** It has become well, or sick. */
  changed(engine: Engine): void;
  /** It has told something. */
  told(engine: Engine, event: ProviderEvent): void;
  /** It has answered for this one, or keeps it no longer in any case. */
  forgotten(placement: Placement): void;
}

/** What an engine's answer is worth. A step of its own would be a promise more for each lock. */
export type Admission<R> = (request: R, answer: Grant | 'busy') => Grant | 'busy';

// One for each fail-over of the fleet, by its name: a SQL engine would keep a row for each. That another process holds it is an
// answer too. That this one does is none: the queue in front of the engine may have said it.
const probeKeyOf = (failover: string) => `failover:${failover}:probe`;
const PROBE_LEASE = 1_000;
/** An engine that has just failed is looked at sooner. */
const PROBES_WHILE_FAILING = 4;
const FREED = { keepFor: 0, failed: true };
const UNAVAILABLE: LockUnavailableError['code'] = 'LOCK_UNAVAILABLE';

/** A hold that nobody wants any more. */
interface Stray {
  /** Until when it stays parked, on the monotonic clock. */
  readonly keepUntil: number;
  readonly failed: boolean;
  /** When its lease is over, on the monotonic clock. */
  readonly until: number;
  /** The engine was told of it again, and has not answered. */
  isBeingTold: boolean;
}

/**
 * One engine as fail-over uses it. Learns how it is doing from every call and, since idle engines and standbys see none,
 * from a probe that takes and gives back a lock. Tells it when it answers again what it did not hear before.
 */
export class Engine {
  readonly #health: EngineHealth;
  /** What it was to release and has not answered for, each until its lease is over anyway. */
  readonly #strays = new Map<Placement, Stray>();
  #timer: Timer | undefined;
  #probing: Promise<void> | undefined;
  #stopped = false;

  constructor(
    readonly name: string,
    readonly member: Member,
    private readonly terms: HealthTerms,
    private readonly context: ProviderContext,
    private readonly listener: EngineListener,
  ) {
    this.#health = new EngineHealth(terms, context.clock, () => {
      listener.changed(this);
    });
  }

  get state(): EngineState {
    return this.#health.state;
  }

  /** How many releases it has not answered, for tests of leaks. */
  get strays(): number {
    return this.#strays.size;
  }

  /** Goes on whatever comes of it. Resolves to whether it answers. */
  async start(): Promise<boolean> {
    this.member.observe((event) => {
      if (event.type === 'unavailable') this.#health.failed();
      if (event.type === 'recovered') this.#tellStrays();
      this.listener.told(this, event);
    });
    this.#probing = this.#probe();
    await this.#probing;
    return !this.#health.isFailing;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    await this.#probing;
  }

  // Not async, like `release`: each promise costs half a microsecond where async hooks are on.
  /** Answers with what `admit` makes of the answer; that throws what it likes, the engine has answered. */
  acquire<R extends AcquireRequest>(request: R, admit: Admission<R>): Answer<Grant | 'busy'> {
    const admitted = (answer: Grant | 'busy') => {
      // An engine that hangs answers a waiter who leaves with 'busy' too.
      if (answer !== 'busy') this.#health.succeeded();
      return admit(request, answer);
    };
    let answer: Answer<Grant | 'busy'>;
    try {
      answer = this.member.acquire(request);
    } catch (error) {
      return this.#failed(error);
    }
    return isPromiseLike(answer) ? answer.then(admitted, this.#failed) : admitted(answer);
  }

  /** Never rejects. */
  async renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    try {
      const outcome = await this.member.renew(grant, lease);
      if (outcome === 'unknown') this.#health.failed();
      else this.#health.succeeded();
      return outcome;
    } catch (error) {
      this.#learn(error);
      return 'unknown';
    }
  }

  /**
   * Never rejects. Also what it does not answer now is released: when it answers again, unless its lease is over by then.
   */
  release(placement: Placement, manner: ReleaseManner): Answer<ReleaseOutcome> {
    const keepUntil = this.context.clock.now() + manner.keepFor;
    const settled = (outcome: ReleaseOutcome) => {
      if (outcome !== 'unknown') this.#forget(placement);
      else if (!this.#strays.has(placement)) {
        // An extension may have prolonged it beyond what was asked for first.
        const until = Math.max(this.context.clock.now() + placement.keptFor, placement.keptUntil);
        this.#strays.set(placement, { keepUntil, failed: manner.failed, until, isBeingTold: false });
      }
      return outcome;
    };
    const failed = (error: unknown) => {
      this.#learn(error);
      return settled('unknown');
    };
    try {
      // What was granted goes back as it came: a queue finds by it the readers that share it.
      const outcome = this.member.release(placement.grant ?? placement, manner);
      return isPromiseLike(outcome) ? outcome.then(settled, failed) : settled(outcome);
    } catch (error) {
      return failed(error);
    }
  }

  #tellStrays(): void {
    // One at a time: an engine that hangs would gather those that are told again.
    for (const [placement, stray] of this.#strays) if (!stray.isBeingTold) void this.#tell(placement, stray);
  }

  async #tell(placement: Placement, stray: Stray): Promise<void> {
    const { keepUntil, failed } = stray;
    stray.isBeingTold = true;
    await this.release(placement, { keepFor: Math.max(0, keepUntil - this.context.clock.now()), failed });
    stray.isBeingTold = false;
  }

  #forgetOldStrays(): void {
    const now = this.context.clock.now();
    for (const [placement, { until }] of this.#strays) if (until <= now) this.#forget(placement);
  }

  #forget(placement: Placement): void {
    this.#strays.delete(placement);
    this.listener.forgotten(placement);
  }

  readonly #failed = (error: unknown): never => {
    this.#learn(error);
    throw error;
  };

  /** Only an engine that does not answer has failed: what it refuses for a reason it has answered. */
  #learn(error: unknown): void {
    if (LockError.is(error) && error.code === UNAVAILABLE) this.#health.failed();
  }

  #schedule(): void {
    if (this.#stopped) return;
    const pause = this.#health.isFailing ? this.terms.probeEvery / PROBES_WHILE_FAILING : this.terms.probeEvery;
    this.#timer = this.context.clock.setTimer(
      () => {
        this.#probing = this.#probe();
      },
      // Not all processes at once.
      pause * (0.75 + this.context.random.fraction() / 2),
    );
  }

  async #probe(): Promise<void> {
    const { clock, random, name } = this.context;
    const departure = new AbortController();
    const probe: AcquireRequest = {
      key: probeKeyOf(name),
      holder: random.id(),
      mode: 'exclusive',
      lease: PROBE_LEASE,
      renew: false,
      minHold: 0,
      wait: 0,
      options: {},
      signal: departure.signal,
    };
    try {
      await inTime(this.#ask(probe), this.terms.probeTimeout, clock);
      this.#health.succeeded();
      this.#tellStrays();
    } catch (error) {
      departure.abort();
      this.#learn(error);
    }
    // Also what was not granted in time may be granted late.
    await inTime(this.#giveBack(probe), this.terms.probeTimeout, clock).catch(() => undefined);
    this.#forgetOldStrays();
    this.#schedule();
  }

  /** Also what it throws comes as an answer. */
  async #ask(probe: AcquireRequest): Promise<Grant | 'busy'> {
    return this.member.acquire(probe);
  }

  async #giveBack(probe: Holder): Promise<ReleaseOutcome> {
    return this.member.release(probe, FREED);
  }
}
