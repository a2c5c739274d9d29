import { isUnavailable } from '../../../lib/core/toolkit/retryable.js';
import { SeededRandom } from '../../../lib/provider-kit/seeded-random.js';
import { exploration, SEED } from '../../exploration.js';
import { DAY, every, Fleet, MINUTE, SECOND, START, type TestInstance, unavailable } from './fleet.js';

const PERIOD = MINUTE;
const TICKS = 200;
const LEASE = 10 * SECOND;
/** A firing looks at a busy lock, or asks a silent server, for 5 s; commands take some time. */
const A_FIRING = 6 * SECOND;
const AFTER_CRASH = 1;

interface Span {
  readonly from: number;
  to: number;
}

/** A process fired for a tick. */
interface Firing extends Span {
  readonly tick: number;
  readonly instance: TestInstance;
  outcome: string;
}

/** A task that was begun. */
interface Start extends Span {
  readonly tick: number;
  readonly instance: TestInstance;
}

/**
 * Four processes whose clocks are wrong by up to a third of the period, one of them by a day; timers that are late; tasks of up to two periods; crashes,
 * also between two commands; lost replies, and outages of up to three ticks.
 */
class Simulation {
  readonly fleet = new Fleet();
  readonly firings: Firing[] = [];
  readonly starts: Start[] = [];
  readonly outages: Span[] = [];
  /** When a lock was kept by a process that had crashed. */
  readonly leftLocks: Span[] = [];
  readonly unexpected: string[] = [];
  readonly #random: SeededRandom;
  readonly #schedule = every(PERIOD);

  constructor(
    seed: number,
    private readonly hasLooks: boolean,
  ) {
    this.#random = new SeededRandom(seed);
  }

  async run(): Promise<void> {
    for (let place = 0; place < 4; place += 1) {
      // Those that fire together meet at each command.
      const most = this.#random.pick([20, 20, PERIOD / 3]);
      const ahead = place === 3 ? DAY : Math.round((this.#random.fraction() * 2 - 1) * most);
      await this.#boot(ahead);
    }
    this.#later(this.#upTo(20 * PERIOD), () => this.#outage());
    await this.fleet.clock.advance(TICKS * PERIOD);
    for (const each of this.fleet.instances) each.kill();
  }

  async #boot(ahead: number): Promise<void> {
    const random = { id: () => this.#id(), fraction: () => this.#random.fraction() };
    const looks = this.hasLooks ? ({ catchUp: '1h', afterCrash: AFTER_CRASH } as const) : {};
    const task = (tick: number) => this.#task(instance, tick);
    const instance: TestInstance = await this.fleet.add({
      ahead,
      lease: LEASE,
      schedule: this.#schedule,
      task,
      random,
      ...looks,
    });
    instance.fault = (command) => this.#command(instance, command);
    if (this.hasLooks) instance.job.start();
    this.#fireNext(instance);
    this.#later(this.#upTo(30 * PERIOD), () => this.#crash(instance, ahead));
  }

  /** As `cron`: by the clock of the process. */
  #fireNext(instance: TestInstance): void {
    const own = instance.clock.wallTime();
    const late = this.#random.fraction() < 0.1 ? this.#upTo(1_700) : 0;
    const tick = this.#schedule.next(own)!;
    instance.clock.setTimer(
      () => {
        void this.#fire(instance, tick);
        this.#fireNext(instance);
      },
      tick - own + late,
    );
  }

  async #fire(instance: TestInstance, tick: number): Promise<void> {
    const firing: Firing = { tick, instance, from: this.fleet.now, to: Infinity, outcome: 'killed' };
    this.firings.push(firing);
    const before = instance.skipped.length;
    try {
      await instance.fire();
      firing.outcome = instance.skipped[before] ?? 'ran';
    } catch (error) {
      firing.outcome = isUnavailable(error) ? 'unavailable' : String(error);
    }
    firing.to = this.fleet.now;
  }

  async #task(instance: TestInstance, tick: number): Promise<void> {
    if (this.fleet.record?.instance !== instance.name) this.unexpected.push(`${instance.name} runs without its record`);
    const start: Start = { tick, instance, from: this.fleet.now, to: Infinity };
    this.starts.push(start);
    const length = this.#random.pick([1, SECOND, this.#upTo(PERIOD), this.#upTo(2 * PERIOD)]);
    await new Promise<void>((resolve) => instance.clock.setTimer(resolve, length));
    start.to = this.fleet.now;
  }

  async #command(instance: TestInstance, command: string): Promise<unknown> {
    await new Promise<void>((resolve) => instance.clock.setTimer(resolve, this.#upTo(20)));
    if (this.outages.some(({ to }) => to > this.fleet.now)) throw unavailable();
    if (this.#random.fraction() < 0.01) throw unavailable();
    return command === 'replace' && this.#random.fraction() < 0.03 ? 'lost reply' : undefined;
  }

  #crash(instance: TestInstance, ahead: number): void {
    const { now } = this.fleet;
    instance.kill();
    for (const each of this.starts) if (each.instance === instance) each.to = Math.min(each.to, now);
    this.leftLocks.push({ from: now, to: now + LEASE });
    this.#later(this.#upTo(3 * PERIOD), () => this.#boot(ahead));
  }

  #outage(): void {
    const { now } = this.fleet;
    const to = now + this.#upTo(3 * PERIOD);
    this.outages.push({ from: now, to });
    this.#later(to - now, () => {
      for (const each of this.fleet.instances) if (!each.isDead) each.recovered();
    });
    this.#later(this.#upTo(30 * PERIOD) + 3 * PERIOD, () => this.#outage());
  }

  /** The ticks that were begun more often than they may be. */
  get repeated(): string[] {
    const ticks = new Set(this.starts.map(({ tick }) => tick));
    return [...ticks].flatMap((tick) => {
      const starts = this.starts.filter((each) => each.tick === tick);
      const most = this.hasLooks ? 1 + AFTER_CRASH : 1;
      // Again only after a crash, or where the lock was lost in an outage.
      const isAllowed = starts.slice(1).every((_, index) => {
        const { instance, from } = starts[index]!;
        return instance.isDead || this.outages.some((outage) => overlaps(outage, { from, to: this.fleet.now }));
      });
      return starts.length <= most && isAllowed ? [] : [`${name(tick)} was begun ${starts.length} times`];
    });
  }

  /** The ticks that nobody has begun, and for which somebody was fired who could have. */
  get forgotten(): string[] {
    const begun = new Set(this.starts.map(({ tick }) => tick));
    const ticks = Array.from({ length: TICKS - 2 }, (_, index) => START + (index + 1) * PERIOD);
    return ticks
      .filter((tick) => !begun.has(tick))
      .flatMap((tick) => {
        const able = this.firings.filter((each) => each.tick === tick && !this.#isExcused(each));
        const outcomes = able.map(({ instance, outcome }) => `${instance.name}: ${outcome}`);
        return able.length === 0 ? [] : [`${name(tick)} was not begun: ${outcomes.join(', ')}`];
      });
  }

  /** It was fired during a run or an outage, or did not live long enough. */
  #isExcused({ instance, from, to, outcome }: Firing): boolean {
    const firing = { from, to: Math.min(to, from + A_FIRING) };
    if (outcome === 'killed') return instance.isDead;
    const during = (spans: readonly Span[]) => spans.some((span) => overlaps(span, firing));
    const runs = this.starts.map((start) => ({ from: start.from, to: start.to + SECOND }));
    return during(this.outages) || during(runs) || during(this.leftLocks);
  }

  #later(delay: number, work: () => unknown): void {
    this.fleet.clock.setTimer(() => void work(), delay);
  }

  #upTo(most: number): number {
    return Math.round(this.#random.fraction() * most);
  }

  #id(): string {
    return Array.from({ length: 32 }, () => Math.floor(this.#random.fraction() * 16).toString(16)).join('');
  }
}

function overlaps(one: Span, other: Span): boolean {
  return one.from <= other.to && other.from <= one.to;
}

function name(tick: number): string {
  return `tick ${(tick - START) / PERIOD}`;
}

describe.each([
  ['without looks', false],
  ['with catchUp and afterCrash', true],
])('%s', (_, hasLooks) => {
  it.each(Array.from({ length: exploration(2, 40) }, (__, index) => SEED + index))(
    'no tick is begun twice, and each is begun that a process could begin (seed %d)',
    async (seed) => {
      const simulation = new Simulation(seed, hasLooks);
      await simulation.run();
      expect([simulation.unexpected, simulation.repeated, simulation.forgotten]).toEqual([[], [], []]);
      // It was no idle run.
      expect(new Set(simulation.starts.map(({ tick }) => tick)).size).toBeGreaterThan(TICKS / 8);
      expect(simulation.firings.map(({ outcome }) => outcome)).toEqual(
        expect.arrayContaining(['ran', 'done', 'overlap', 'clock', 'unavailable']),
      );
    },
  );
});
