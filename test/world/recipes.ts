import { LockError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { runGuarded } from '../../lib/core/hold/guarded-task.js';
import type { Schedule } from '../../lib/recipes/jobs/schedule.js';
import { ScheduledJob } from '../../lib/recipes/jobs/scheduled-job.js';
import { Leadership, planCampaign } from '../../lib/recipes/leadership.js';
import { Dice } from './dice.js';
import { JOB } from './job-judge.js';
import { type Judge, newCall } from './judge.js';
import type { PlannedRecipes } from './plan.js';
import type { Story, Timeline } from './timeline.js';
import type { Process } from './workload.js';

const LEADER = 'leader';
/** In ms. A term must be over before the check that nothing is left. */
const LONGEST_TERM = 60_000;
/** The end of a run is recorded while its lock is held, with retries for a second. In ms. */
const RECORDED_WITHIN = 2_000;

/** The job that all processes schedule, and the leadership for which all of them campaign. */
export class Recipes {
  readonly #ending = new AbortController();

  constructor(
    private readonly plan: PlannedRecipes,
    private readonly judge: Judge,
    private readonly story: Story,
    private readonly timeline: Timeline,
  ) {}

  start(process: Process): void {
    void this.#schedule(process, new Dice(this.plan.seed, process.number, 1));
    void this.#campaign(process, new Dice(this.plan.seed, process.number, 2));
  }

  /** The scheduler no longer fires, and leaders resign. */
  end(): void {
    this.#ending.abort();
  }

  async #schedule(process: Process, dice: Dice): Promise<void> {
    const { period, catchUp, afterCrash, lease, task } = this.plan;
    const { locks, machine, number, place } = process;
    const { signal } = this.#ending;
    const latest = (time: number) => Math.floor(time / period) * period;
    const schedule: Schedule = { text: `each ${period} ms (UTC)`, latest, next: (tick) => latest(tick) + period };
    const job = new ScheduledJob(locks, JOB, locks.plan({ wait: 0, lease }), () => schedule, { catchUp, afterCrash });
    const perform = async (lock: Lock) => {
      const { judge, timeline } = this;
      const tick = judge.jobs?.begins(number);
      await this.#hold(process, JOB, lock, machine.sleep(Math.min(dice.around(task), period)));
      const endedAt = timeline.now;
      if (tick === undefined || !lock.isHeld()) return;
      timeline.in(RECORDED_WITHIN, () => {
        if (judge.isHealthySince(endedAt, place)) judge.jobs?.ended(tick);
      });
    };
    const fire = async () => {
      const run = await job.begin();
      if (run) await runGuarded(run.lock, run.recorded(perform), 'ignore');
    };
    job.attach(fire);
    job.start(() => !signal.aborted);
    for (;;) {
      const now = machine.clock.wallTime();
      await machine.sleep(latest(now) + period - now);
      if (signal.aborted) return;
      fire().catch((error: unknown) => {
        if (!LockError.is(error)) this.judge.report(`the job of process ${number} failed: ${String(error)}`);
      });
    }
  }

  async #campaign(process: Process, dice: Dice): Promise<void> {
    const { locks, machine } = process;
    const lead = async (term: { readonly signal: AbortSignal }) => {
      const lock = locks.current(LEADER);
      if (lock === undefined) throw new Error('A leader has no lock.');
      const ended = new Promise((resolve) => {
        term.signal.addEventListener('abort', resolve);
      });
      await this.#hold(
        process,
        LEADER,
        lock,
        Promise.race([ended, machine.sleep(Math.min(dice.around(this.plan.term), LONGEST_TERM))]),
        term.signal,
      );
    };
    const plan = planCampaign(locks, { lease: this.plan.lease }, 'runAsLeader()');
    const { signal } = this.#ending;
    await new Leadership(locks).run(LEADER, lead, plan, { signal, onError: () => undefined });
  }

  async #hold(
    { place, machine, number }: Process,
    key: string,
    lock: Lock,
    work: Promise<unknown>,
    signal = lock.signal,
  ): Promise<void> {
    const { lease } = this.plan;
    const terms = {
      place,
      process: number,
      machine,
      keys: [key],
      mode: 'exclusive',
      limit: 1,
      lease,
      minHold: 0,
      wait: 0,
    } as const;
    const call = newCall(
      { ...terms, maxHold: Infinity, isQuiet: false },
      `the ${key} of process ${number}`,
      this.timeline.now,
    );
    this.story.note(`${call.name} starts with token ${lock.fencingToken}`);
    this.judge.begins(call);
    this.judge.enters(call, lock, signal);
    try {
      await work;
    } finally {
      this.story.note(`${call.name} ends`);
      this.judge.leaves(call);
    }
  }
}
