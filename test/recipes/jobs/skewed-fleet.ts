import type { Timer } from '../../../lib/api/clock.js';
import type { LockProvider } from '../../../lib/api/lock-provider.js';
import { runGuarded } from '../../../lib/core/hold/guarded-task.js';
import { LockManager } from '../../../lib/core/lock-manager.js';
import { isUnavailable } from '../../../lib/core/toolkit/retryable.js';
import { systemClock } from '../../../lib/core/toolkit/clock.js';
import { type Looks, looksOf, every, DAY, SECOND } from './fleet.js';
import { ScheduledJob } from '../../../lib/recipes/jobs/scheduled-job.js';
import type { Schedule } from '../../../lib/recipes/jobs/schedule.js';
import { until } from '../../until.js';

const PERIOD = 1_000;
/** How many ms each instance's clock is ahead: up to a third of the period, and one by a day. */
const AHEAD = [0, 333, -333, DAY];

/** Four instances with skewed clocks in this process, each firing a job every second on a real server. */
export class SkewedFleet {
  /** The ticks in the order they started. */
  readonly begun: number[] = [];
  /** How many firings failed because the backend was unavailable. */
  unanswered = 0;
  readonly managers: LockManager[] = [];
  readonly #timers = new Map<number, Timer>();
  readonly #firings = new Set<Promise<void>>();
  readonly errors: unknown[] = [];

  constructor(
    /** Returns an instance's providers. The job uses `main`. */
    private readonly providersOf: () => Promise<Readonly<Record<string, LockProvider>>>,
    private readonly looks: Looks = {},
  ) {}

  async start(): Promise<void> {
    for (const ahead of AHEAD) {
      const clock = { ...systemClock, wallTime: () => Date.now() + ahead };
      const providers = await this.providersOf();
      const locks = new LockManager({ providers, default: 'main', clock, namespace: 'ticks', shutdownGrace: 30_000 });
      await locks.start();
      this.managers.push(locks);
      this.#schedule(locks, ahead);
    }
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers.values()) systemClock.clearTimer(timer);
    this.#timers.clear();
    await Promise.all(this.#firings);
    await Promise.all(this.managers.map((each) => each.stop()));
  }

  /** Checks that no firing failed, and that no tick started twice or after a later one. */
  expectEachTickOnce(): void {
    expect(this.errors).toEqual([]);
    expect(this.begun).toEqual([...new Set(this.begun)].sort((one, other) => one - other));
  }

  #schedule(locks: LockManager, ahead: number): void {
    const schedule = every(PERIOD);
    const plan = locks.plan({ wait: 0 });
    const job = new ScheduledJob(locks, 'report', plan, () => schedule, looksOf(this.looks));
    const run = async (): Promise<void> => {
      const begun = await job.begin();
      if (!begun) return;
      const recorded = async () => {
        for await (const { tick } of locks.admin.jobs()) this.begun.push(tick.getTime());
      };
      await runGuarded(begun.lock, begun.recorded(recorded), plan.settings.onLost);
    };
    job.attach(run);
    job.start();
    const next = (): void => {
      const now = Date.now() + ahead;
      const timer = systemClock.setTimer(fire, schedule.next(now)! - now);
      this.#timers.set(ahead, timer);
    };
    const fire = (): void => {
      const firing = run().catch((error: unknown) => {
        if (isUnavailable(error)) this.unanswered += 1;
        else this.errors.push(error);
      });
      this.#firings.add(firing);
      void firing.finally(() => this.#firings.delete(firing));
      next();
    };
    next();
  }
}

/** Deploys one schedule, then another, on the same provider. Nothing may run for a tick that already ran. */
export async function deployOtherSchedule(providerOf: () => Promise<LockProvider>): Promise<void> {
  const old = await instance(await providerOf(), every(SECOND, 'each second'));
  expect(await old.run()).toBe(true);
  const [run] = await old.records();
  await old.locks.stop();

  const next = await instance(await providerOf(), every(DAY, 'each day'));
  next.job.start();
  await until(async () => (await next.records())[0]?.state === 'baseline', 'a baseline is recorded', 60_000);
  expect(await next.records()).toMatchObject([{ schedule: 'each day', attempt: 1, tick: run?.tick }]);
  expect(await next.run()).toBe(false);
  expect(next.runs + old.runs).toBe(1);
  await next.locks.stop();
}

async function instance(provider: LockProvider, schedule: Schedule) {
  const locks = new LockManager({ providers: { main: provider }, namespace: 'deployed' });
  await locks.start();
  const plan = locks.plan({ wait: 0 });
  const looks = looksOf({ catchUp: '24d', afterCrash: 1 });
  const job = new ScheduledJob(locks, 'report', plan, () => schedule, looks);
  const one = {
    locks,
    job,
    runs: 0,
    run: async (): Promise<boolean> => {
      const begun = await job.begin();
      if (!begun) return false;
      const task = begun.recorded(() => (one.runs += 1));
      await runGuarded(begun.lock, task, plan.settings.onLost);
      return true;
    },
    records: async () => {
      const records = [];
      for await (const record of locks.admin.jobs()) records.push(record);
      return records;
    },
  };
  job.attach(one.run);
  return one;
}
