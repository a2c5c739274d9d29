import type { LockOptions } from '../../lib/api/lock-options.js';
import type { Lock } from '../../lib/api/lock.js';
import { LockDeadlockError, LockError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { Dice } from './dice.js';
import { type Call, type Judge, newCall, type Terms } from './judge.js';
import type { Machine } from './machine.js';
import type { CallKind, Habits, PlannedCaller } from './plan.js';
import type { Story } from './timeline.js';

/** A process of the fleet, from its start until it crashes. */
export interface Process {
  readonly place: number;
  /** How many processes were started before it. */
  readonly number: number;
  readonly machine: Machine;
  readonly locks: LockManager;
}

/** How many calls ended with each outcome, by error code. */
export type Outcomes = Map<string, number>;

const GAVE_UP = new Error('The caller gave up.');
/** The maximum number of callers of one process that arrive at the same moment. */
const MOST_AT_ONCE = 5;
const LONGEST_TASK = 45_000;

/** The callers: each one repeatedly chooses a call and makes it. */
export class Workload {
  readonly outcomes: Outcomes = new Map();
  isOver = false;
  #calls = 0;

  constructor(
    private readonly habits: Habits,
    private readonly keys: number,
    /** Whether a call can set its own lease. */
    private readonly hasLeases: boolean,
    private readonly judge: Judge,
    private readonly story: Story,
    private readonly now: () => number,
  ) {}

  async run(process: Process, caller: PlannedCaller): Promise<void> {
    const dice = new Dice(caller.seed, process.number);
    const { machine } = process;
    while (!this.isOver && !machine.isDead) {
      await machine.sleep(dice.around(this.habits.pause));
      if (this.#hasEnded()) return;
      const kind = dice.weighted<CallKind>(this.habits.kinds);
      if (kind === 'nested' || kind === 'ordered') await this.#nest(process, dice, kind === 'ordered');
      else if (kind === 'burst') {
        const key = this.#key(dice);
        const callers = Array.from({ length: 2 + dice.whole(MOST_AT_ONCE - 1) }, () => new Dice(dice.whole(2 ** 31)));
        await Promise.all(callers.map((each) => this.#call(process, each, 'exclusive', [key])));
      } else await this.#call(process, dice, kind, this.#keysOf(kind, dice));
    }
  }

  // In a method, because the compiler assumes that nothing changes during an await.
  #hasEnded(): boolean {
    return this.isOver;
  }

  #key(dice: Dice): string {
    return `k${dice.whole(this.keys)}`;
  }

  #keysOf(kind: CallKind, dice: Dice): string[] {
    const key = dice.whole(this.keys);
    if (kind === 'limited') return [`pool${key}`];
    if (kind !== 'several') return [`k${key}`];
    return [`k${key}`, `k${(key + 1) % Math.max(2, this.keys)}`, ...(dice.chance(0.5) ? ['k9'] : [])];
  }

  /** @param isOrdered whether all callers lock in one order, so that no cycle can arise */
  async #nest(process: Process, dice: Dice, isOrdered: boolean): Promise<void> {
    const keys = Math.max(2, this.keys);
    const start = dice.whole(keys);
    const next = (start + 1) % keys;
    const [first, second] = isOrdered && next < start ? [next, start] : [start, next];
    const wait = dice.pick([1_000, 4_000, 20_000]);
    await this.#call(process, dice, 'exclusive', [`k${first}`], {
      wait,
      inside: async (outer) => {
        await this.#call(process, dice, 'exclusive', [`k${second}`], { wait, outer });
      },
    });
  }

  async #call(
    process: Process,
    dice: Dice,
    kind: 'exclusive' | 'shared' | 'limited' | 'several',
    keys: readonly string[],
    {
      wait = dice.pick(this.habits.waits),
      outer,
      inside,
    }: { wait?: number; outer?: Call; inside?: (call: Call) => Promise<void> } = {},
  ): Promise<void> {
    const { habits, judge } = this;
    const { machine } = process;
    const mode = kind !== 'several' ? kind : dice.chance(0.3) ? 'shared' : 'exclusive';
    const lease = dice.pick(habits.leases);
    const isOneKey = kind !== 'several' && outer === undefined && inside === undefined;
    const minHold = isOneKey && dice.chance(habits.minHold) ? dice.pick(habits.minHolds) : 0;
    const maxHold = dice.chance(habits.maxHold)
      ? Math.max(minHold, dice.around(dice.pick([lease, habits.task])) + 50)
      : Infinity;
    const { limit } = habits;
    const { place } = process;
    // The record of a limited holder doesn't show which call holds the lock under it.
    const isQuiet = mode !== 'limited' && dice.chance(0.5);
    const call = this.#begin(
      { place, process: process.number, machine, keys, mode, limit, lease, minHold, maxHold, wait, isQuiet },
      process,
      outer,
    );
    const abort = new AbortController();
    if (dice.chance(habits.abort)) {
      machine.clock.setTimer(
        () => {
          if (call.lock === undefined) call.abortedAt = this.now();
          abort.abort(GAVE_UP);
        },
        dice.around(dice.pick([2, 30, 800])),
      );
    }
    const options: LockOptions = {
      ...{ wait, minHold, onLost: 'ignore', signal: abort.signal },
      ...(this.hasLeases && { lease }),
      ...(maxHold !== Infinity && { maxHold }),
      ...(mode === 'shared' && { mode }),
      ...(mode === 'limited' && { limit }),
    };
    try {
      await process.locks.withLock(
        [...keys],
        async (lock) => {
          await this.#task(call, lock, dice, inside);
        },
        options,
      );
      this.#count('served');
    } catch (error) {
      this.#fail(call, error);
    } finally {
      judge.ends(call);
    }
  }

  #begin(terms: Terms, { number }: Process, outer: Call | undefined): Call {
    this.#calls += 1;
    const call = newCall(terms, `call ${this.#calls} of process ${number}`, this.now(), outer);
    const { mode, wait, lease, minHold, keys } = terms;
    this.story.note(
      `${call.name} requests ${keys.join()} (${mode}, wait ${wait}, lease ${lease.toFixed(0)}${minHold > 0 ? `, minHold ${minHold}` : ''})`,
    );
    this.judge.begins(call);
    return call;
  }

  async #task(call: Call, lock: Lock, dice: Dice, inside?: (call: Call) => Promise<void>): Promise<void> {
    const { habits, judge, story } = this;
    story.note(`${call.name} enters ${call.keys.join()} with token ${lock.fencingToken}`);
    judge.enters(call, lock);
    try {
      if (inside) await inside(call);
      const isLong = dice.chance(habits.longTasks);
      const duration = isLong ? Math.min(dice.around(1.2 * call.lease), LONGEST_TASK) : dice.around(habits.task);
      if (dice.chance(habits.extend)) await this.#extend(call, lock, dice);
      await call.machine.sleep(duration);
    } finally {
      story.note(`${call.name} leaves ${call.keys.join()}`);
      judge.leaves(call);
    }
  }

  async #extend(call: Call, lock: Lock, dice: Dice): Promise<void> {
    const leases = [0.2, 0.5, 1, 2].map((share) => Math.max(100, Math.round(call.lease * share)));
    if (dice.chance(0.5)) {
      // Two extensions in flight at the same time.
      void this.#extendTo(dice.pick(leases), call, lock);
      await call.machine.sleep(dice.around(10));
    }
    await this.#extendTo(dice.pick(leases), call, lock);
  }

  async #extendTo(lease: number, call: Call, lock: Lock): Promise<void> {
    this.story.note(`${call.name} extends its lease to ${lease} ms`);
    call.longest = Math.max(call.longest, lease);
    call.shortest = Math.min(call.shortest, lease);
    try {
      await lock.extend(lease);
    } catch (error) {
      if (!(error instanceof LockError)) throw error;
      this.#count(`extend ${error.code}`);
    }
  }

  #fail(call: Call, error: unknown): void {
    if (error === GAVE_UP) this.#count('aborted');
    else if (error instanceof LockError) {
      this.#count(error.code);
      if (error instanceof LockDeadlockError) this.judge.refusedAsDeadlock(call);
      else if (error instanceof LockUnavailableError) this.judge.refusedAsUnavailable(call);
    } else
      this.judge.report(
        `${call.name} failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
      );
    this.story.note(`${call.name} fails: ${error instanceof LockError ? error.code : String(error)}`);
  }

  #count(outcome: string): void {
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
  }
}
