import type { Timer } from '../../../lib/api/clock.js';
import type { LockProvider } from '../../../lib/api/lock-provider.js';
import { runGuarded } from '../../../lib/core/hold/guarded-task.js';
import { LockManager } from '../../../lib/core/lock-manager.js';
import { isUnavailable } from '../../../lib/core/toolkit/retryable.js';
import { systemClock } from '../../../lib/core/toolkit/clock.js';
import { type Looks, looksOf } from './looks-of.js';
import { ScheduledJob } from '../../../lib/recipes/jobs/scheduled-job.js';
import { every } from './fleet.js';

const PERIOD = 1_000;
const DAY = 86_400_000;
/** By how many ms the clocks of the instances are ahead: up to a third of the period, and one by a day. */
const AHEAD = [0, 333, -333, DAY];

/** Four instances of this process, whose clocks are wrong, fire a job each second on a real server. */
export class SkewedFleet {
  /** The ticks that were begun, in their order. */
  readonly begun: number[] = [];
  /** How many firings the backend did not answer. */
  unanswered = 0;
  readonly managers: LockManager[] = [];
  readonly #timers = new Map<number, Timer>();
  readonly #firings = new Set<Promise<void>>();
  readonly errors: unknown[] = [];

  constructor(
    /** The providers of each instance: `main` is that of the job. */
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

  /** No firing has failed, and no tick was begun twice, or after a later one. */
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
