import { getEventListeners } from 'node:events';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { exploration, SEED } from '../exploration.js';
import { BACKENDS, startManager } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';
import { compileLibrary, type CompiledLibrary } from '../servers/compiled-library.js';
import { runOnce } from '../../lib/recipes/run-once.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

const ROUNDS = exploration(2_000, 20_000);

describe.each(BACKENDS)('cleanup (%s backend)', (_, provide) => {
  it(`leaves nothing behind after ${ROUNDS} acquires and releases`, async () => {
    const table = new MemoryStore();
    const { locks, clock } = await startManager({ provider: provide(table) });
    for (let round = 0; round < ROUNDS; round += 1) {
      await locks.withLock(`key ${round % 7}`, (lock) => lock.signal);
    }
    expect([clock.pendingTimers, table.size, locks.admin.held(), locks.admin.waiting()]).toEqual([0, 0, [], []]);
  });

  it(`leaves nothing behind after ${ROUNDS} aborted waits`, async () => {
    const table = new MemoryStore();
    const { locks, clock } = await startManager({ provider: provide(table) });
    const listeners = new Set<unknown>();
    const controllers = Array.from({ length: ROUNDS }, () => new AbortController());
    const lock = await locks.acquire('a');
    const timersBefore = clock.pendingTimers;
    for (const { signal } of controllers) countListeners(signal, listeners);
    for (let start = 0; start < ROUNDS; start += 500) {
      const batch = controllers.slice(start, start + 500);
      const waiting = batch.map(({ signal }) => locks.acquire('a', { signal }).catch((reason: unknown) => reason));
      await clock.advance(1);
      for (const controller of batch) controller.abort('enough');
      expect(new Set(await Promise.all(waiting))).toEqual(new Set(['enough']));
    }
    await clock.advance(0);
    expect([clock.pendingTimers, listeners.size, locks.admin.waiting()]).toEqual([timersBefore, 0, []]);
    await lock.release();
    expect([clock.pendingTimers, table.size, locks.admin.held()]).toEqual([0, 0, []]);
  });
});

it('a signal that did not abort keeps no listener', async () => {
  const { locks } = await startManager();
  const { signal } = new AbortController();
  const listeners = new Set<unknown>();
  countListeners(signal, listeners);
  await Promise.all([1, 2, 3].map(() => locks.withLock('a', () => Promise.resolve(), { signal })));
  await locks.acquire('a');
  await expect(locks.acquire('a', { signal, wait: 0 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
  expect(listeners.size).toBe(0);
});

it('many waiters that share a signal add one listener', async () => {
  const { locks, clock } = await startManager();
  const lock = await locks.acquire('a');
  const controller = new AbortController();
  const { signal } = controller;
  const wait = () => locks.acquire('a', { signal }).then(String, (reason: unknown) => reason);
  const early = locks.acquire('a', { signal, wait: 10 }).catch(() => 'busy');
  const waiting = Array.from({ length: 20 }, wait);
  await clock.advance(10);
  expect(await early).toBe('busy');
  expect(getEventListeners(signal, 'abort')).toHaveLength(1);
  controller.abort('enough');
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(['enough']));
  expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  await lock.release();
  expect(clock.pendingTimers).toBe(0);
});

it('a long outage leaves only one timer, and none after the backend recovers', async () => {
  const provider = new ScriptedProvider();
  provider.onAcquire = () => Promise.reject(new Error('down'));
  provider.onRelease = () => Promise.reject(new Error('down'));
  const { locks, clock } = await startManager({ provider });
  const waiting = [1, 2, 3].map((each) => locks.acquire('a', { wait: each * 1_000 }).catch((error: unknown) => error));
  await clock.advance(40_000);
  await Promise.all(waiting);
  // Requests that may have reached the backend are released once it is back.
  expect([clock.pendingTimers, locks.admin.waiting()]).toEqual([1, []]);
  provider.onRelease = () => 'lost';
  provider.context.emit({ type: 'recovered' });
  await clock.advance(1_000);
  expect(clock.pendingTimers).toBe(0);
});

it('a manager leaves neither timers nor handles in the process', async () => {
  const before = process.getActiveResourcesInfo();
  const locks = new LockManager({ providers: { main: new MemoryLockProvider() } });
  await locks.start();
  const lock = await locks.acquire('a');
  for (let round = 0; round < 1_000; round += 1) {
    const controller = new AbortController();
    const waiting = locks.acquire('a', { signal: controller.signal }).catch((reason: unknown) => reason);
    controller.abort('enough');
    await waiting;
    await locks.withLock(`b${round}`, () => Promise.resolve());
  }
  await lock.release();
  await locks.stop();
  expect(process.getActiveResourcesInfo()).toEqual(before);
});

/** Tracks the signal's current listeners in `listeners`. */
function countListeners(signal: AbortSignal, listeners: Set<unknown>): void {
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
    listeners.add(args[1]);
    addEventListener.apply(signal, args);
  };
  signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
    listeners.delete(args[1]);
    removeEventListener.apply(signal, args);
  };
}

const run = promisify(execFile);

// Only a separate process shows whether a process exits.
describe('a process without other work', () => {
  let library: CompiledLibrary;
  beforeAll(async () => {
    library = await compileLibrary();
  });
  afterAll(() => library.remove());

  const program = (body: string) => {
    const manager = join(library.folder, 'core/lock-manager.js');
    const memory = join(library.folder, 'providers/memory/memory-lock-provider.js');
    const source = `
      import { LockManager } from '${manager}';
      import { MemoryLockProvider } from '${memory}';
      const locks = new LockManager({ providers: { memory: new MemoryLockProvider() }, shutdownGrace: 50 });
      await locks.start();
      ${body}`;
    return run(process.execPath, ['--input-type=module', '--eval', source]);
  };

  it('exits while it holds a lock in memory, because no timer of the library keeps it alive', async () => {
    const { stdout } = await program(`await locks.acquire('a'); console.log('held');`);
    expect(stdout).toBe('held\n');
  });

  it('does not exit while a caller waits for a lock', async () => {
    const { stdout } = await program(`
      await locks.acquire('a');
      const error = await locks.acquire('a', { wait: '100ms' }).catch((reason) => reason);
      console.log(error.code);`);
    expect(stdout).toBe('LOCK_BUSY\n');
  });

  it('does not exit while a caller without a deadline waits for a hold with maxHold', async () => {
    const { stdout } = await program(`
      await locks.acquire('a', { maxHold: 200 });
      await locks.acquire('a', { wait: Infinity });
      console.log('granted');`);
    expect(stdout).toBe('granted\n');
  });

  it('does not exit while a caller waits for a backend that does not respond', async () => {
    const { stdout } = await program(`
      class Down extends MemoryLockProvider {
        createBackend(context) {
          const acquire = () => Promise.reject(new Error('down'));
          return Object.assign(super.createBackend(context), { acquire });
        }
      }
      const others = new LockManager({ providers: { down: new Down() } });
      await others.start();
      const error = await others.acquire('a', { wait: '100ms' }).catch((reason) => reason);
      console.log(error.code);`);
    expect(stdout).toBe('LOCK_UNAVAILABLE\n');
  });

  it('does not exit before a lock on a possibly unreachable server is released or lost', async () => {
    const { stdout } = await program(`
      class Away extends MemoryLockProvider {
        createBackend(context) {
          const renew = () => Promise.reject(new Error('away'));
          return Object.assign(super.createBackend(context), { renew, locksEndWithProcess: false });
        }
      }
      const others = new LockManager({ providers: { away: new Away() } });
      await others.start();
      const lock = await others.acquire('a', { lease: 200 });
      lock.signal.addEventListener('abort', () => console.log(lock.signal.reason.reason));`);
    expect(stdout).toBe('expired\n');
  });

  it('does not exit in the middle of a stop', async () => {
    const { stdout } = await program(`await locks.acquire('a'); await locks.stop(); console.log('stopped');`);
    expect(stdout).toBe('stopped\n');
  });
});

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const PROCESSES = 64;
const LENGTH = exploration(HOUR / 12, 24 * HOUR);
/** Heap measurements at equal intervals. The first third is skewed by the JIT compiler. */
const LOOKS = 12;
const LIMIT = 8;

/** Processes that compete for one key, one limit and one job, and also lock new keys, until the time is over. */
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

  /** Stops all processes and returns what is left. */
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

  /**
   * Each task checks what it sees, so that a second holder or a token that does not increase is detected immediately.
   */
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
    if (this.#inHot > 1) this.wrong.push(`${this.#inHot} tasks inside the hot key`);
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

  /** Every process fires on each tick, as with a scheduler. */
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

  /** Locks a key that is never used again. */
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
  `${LENGTH / HOUR} hours of ${PROCESSES} processes with a hot key, a limit, a job and new keys: exclusion holds, memory does not grow, nothing is left`,
  async () => {
    const day = new Day();
    await day.run();
    const left = await day.stop();
    expect(day.wrong).toEqual([]);
    expect(left).toEqual({ timers: 0, locks: 0, waiting: 0 });
    expect([...day.ticks.values()].every((runs) => runs === 1)).toBe(true);
    expect(day.ticks.size).toBeGreaterThanOrEqual(LENGTH / MINUTE - 1);
    // Each process locks the hot key every 20 s on average, the limit every 30 s, and a new key every minute.
    expect(day.hot).toBeGreaterThan((0.5 * PROCESSES * LENGTH) / (20 * SECOND));
    expect(day.limited).toBeGreaterThan((0.5 * PROCESSES * LENGTH) / (30 * SECOND));
    expect(day.fresh).toBeGreaterThan((0.5 * PROCESSES * LENGTH) / MINUTE);
    const third = LOOKS / 3;
    const mean = (values: readonly number[]) => values.reduce((sum, each) => sum + each) / values.length;
    const [early, late] = [mean(day.heap.slice(third, 2 * third)), mean(day.heap.slice(-third))];
    // A leak of 10 bytes for each lock would add up to 4 MiB in a day.
    expect(late - early).toBeLessThan(4 * 2 ** 20);
  },
  30 * MINUTE,
);
