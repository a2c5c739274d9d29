import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { runOnce } from '../../lib/recipes/run-once.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { exploration, SEED } from '../exploration.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const PROCESSES = 64;
const LENGTH = exploration(HOUR / 12, 24 * HOUR);
/** Looks at the heap, all equally far from each other. The first third of the time is that of the compiler. */
const LOOKS = 12;
const LIMIT = 8;

/** Processes that all want one key, one limit and one job, and new keys, as long as the clock of their server goes on. */
class Day {
  readonly clock = new FakeClock();
  readonly wrong: string[] = [];
  readonly ticks = new Map<number, number>();
  readonly heap: number[] = [];
  hot = 0;
  limited = 0;
  fresh = 0;
  readonly #store = new MemoryStore();
  readonly #random = new SeededRandom(SEED);
  readonly #fleet: LockManager[] = [];
  readonly #callers: Promise<void>[] = [];
  #lastToken = 0n;
  #inHot = 0;
  #inLimit = 0;
  #isOver = false;

  async run(): Promise<void> {
    for (let process = 0; process < PROCESSES; process += 1) this.#fleet.push(this.#process(process));
    await Promise.all(this.#fleet.map((locks) => locks.start()));
    for (const locks of this.#fleet)
      this.#callers.push(this.#hotKey(locks), this.#limit(locks), this.#job(locks), this.#keys(locks));
    for (let look = 0; look < LOOKS; look += 1) {
      await this.clock.advance(LENGTH / LOOKS);
      this.heap.push(heapUsed());
    }
  }

  /** Answers what is left when all have stopped. */
  async stop(): Promise<{ timers: number; locks: number; waiting: number }> {
    this.#isOver = true;
    await this.clock.advance(2 * MINUTE);
    await Promise.all(this.#callers);
    const waiting = this.#fleet.flatMap((locks) => locks.admin.waiting()).length;
    const locks = this.#store.keys('').length;
    await Promise.all(this.#fleet.map((each) => each.stop()));
    return { timers: this.clock.pendingTimers, locks, waiting };
  }

  #process(number: number): LockManager {
    let ids = 0;
    const id = () => number.toString(16).padStart(12, '0') + (ids += 1).toString(16).padStart(20, '0');
    return new LockManager({
      providers: { main: new MemoryLockProvider({ store: this.#store }) },
      instance: `process-${number}`,
      clock: this.clock,
      random: { id, fraction: () => this.#random.fraction() },
    });
  }

  /** Each task counts what it sees, so that two holders, or a token that is not larger, are seen at once. */
  #hotKey(locks: LockManager): Promise<void> {
    return this.#again(20 * SECOND, async () => {
      await locks.withLock('hot', (lock) => this.#inside(lock.fencingToken!), { wait: '1m' });
      this.hot += 1;
    });
  }

  async #inside(token: bigint): Promise<void> {
    if (token <= this.#lastToken) this.wrong.push(`token ${token} after ${this.#lastToken}`);
    this.#lastToken = token;
    this.#inHot += 1;
    if (this.#inHot > 1) this.wrong.push(`${this.#inHot} in the hot key`);
    await this.#sleep(this.#random.fraction() * 100);
    this.#inHot -= 1;
  }

  #limit(locks: LockManager): Promise<void> {
    return this.#again(30 * SECOND, async () => {
      await locks.withLock('pool', () => this.#share(), { limit: LIMIT, wait: '1m' });
      this.limited += 1;
    });
  }

  async #share(): Promise<void> {
    this.#inLimit += 1;
    if (this.#inLimit > LIMIT) this.wrong.push(`${this.#inLimit} under a limit of ${LIMIT}`);
    await this.#sleep(this.#random.fraction() * 2 * SECOND);
    this.#inLimit -= 1;
  }

  /** Every process fires for each tick, as with a scheduler. */
  async #job(locks: LockManager): Promise<void> {
    while (!this.#isOver) {
      const tick = (Math.floor(this.clock.wallTime() / MINUTE) + 1) * MINUTE;
      await this.#sleep(tick - this.clock.wallTime() + this.#random.fraction() * SECOND);
      const task = async () => {
        this.ticks.set(tick, (this.ticks.get(tick) ?? 0) + 1);
        await this.#sleep(5 * SECOND);
      };
      await runOnce(locks, 'report', task, { due: new Date(tick) });
    }
  }

  /** A key that nobody uses again. */
  #keys(locks: LockManager): Promise<void> {
    return this.#again(MINUTE, async () => {
      await locks.withLock(`order:${(this.fresh += 1)}`, () => this.#sleep(SECOND), { lease: '2s' });
    });
  }

  async #again(pause: number, work: () => Promise<void>): Promise<void> {
    while (!this.#isOver) {
      await this.#sleep(this.#random.fraction() * 2 * pause);
      await work();
    }
  }

  #sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => this.clock.setTimer(resolve, milliseconds));
  }
}

function heapUsed(): number {
  const { gc } = globalThis as { gc?: () => void };
  if (!gc) throw new Error('Run node with --expose-gc.');
  gc();
  return process.memoryUsage().heapUsed;
}

it(
  `${LENGTH / HOUR} hours of ${PROCESSES} processes with a hot key, a limit, a job and new keys: nobody is let in wrongly, no memory grows, nothing is left`,
  async () => {
    const day = new Day();
    await day.run();
    const left = await day.stop();
    expect(day.wrong).toEqual([]);
    expect(left).toEqual({ timers: 0, locks: 0, waiting: 0 });
    expect([...day.ticks.values()].every((runs) => runs === 1)).toBe(true);
    expect(day.ticks.size).toBeGreaterThanOrEqual(LENGTH / MINUTE - 1);
    // Each process comes to the hot key every 20 s on average, the limit every 30 s, a new key every minute.
    expect(day.hot).toBeGreaterThan((0.5 * PROCESSES * LENGTH) / (20 * SECOND));
    expect(day.limited).toBeGreaterThan((0.5 * PROCESSES * LENGTH) / (30 * SECOND));
    expect(day.fresh).toBeGreaterThan((0.5 * PROCESSES * LENGTH) / MINUTE);
    const third = LOOKS / 3;
    const mean = (values: readonly number[]) => values.reduce((sum, each) => sum + each) / values.length;
    const [early, late] = [mean(day.heap.slice(third, 2 * third)), mean(day.heap.slice(-third))];
    // A record of 10 bytes for each lock would be 4 MiB in a day.
    expect(late - early).toBeLessThan(4 * 2 ** 20);
  },
  30 * MINUTE,
);
