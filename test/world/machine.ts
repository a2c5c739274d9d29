import type { Clock, Timer } from '../../lib/api/clock.js';
import type { Timeline, WorldEvent } from './timeline.js';

/** The wall clock of all machines and servers at the start of true time, in ms since the epoch. */
export const EPOCH = 1_800_000_000_000;

interface MachineTimer {
  event: WorldEvent | undefined;
}

/** A machine with one process: its clock drifts, and nothing runs on it while it is paused or after it has crashed. */
export class Machine {
  readonly clock: Clock;
  isDead = false;
  /** Until when the process is paused, in true time. */
  pausedUntil = 0;
  /** By how many ms its wall clock is wrong. */
  wallError = 0;
  /** When it last was suspended, in true time. Its monotonic clock stands still until `wokenAt`. */
  #suspendedAt = Infinity;
  /** When it last woke, or will wake, in true time. */
  wokenAt = -Infinity;
  /** How long it was suspended in total, in true time. */
  #slept = 0;
  readonly #timers = new Set<MachineTimer>();
  #late: (() => void)[] = [];

  /**
   * @param rate how fast its clock runs, relative to true time
   * @param start the reading of its monotonic clock at the start of true time
   */
  constructor(
    private readonly timeline: Timeline,
    rate: number,
    start: number,
  ) {
    this.clock = {
      now: () => start + (Math.min(timeline.now, this.#suspendedAt) - this.#slept) * rate,
      uptime: () => start + timeline.now * rate,
      wallTime: () => EPOCH + this.wallError + timeline.now * rate,
      setTimer: (callback, delay) => this.#setTimer(callback, Math.max(0, delay) / rate),
      clearTimer: (timer: Timer) => {
        this.#clear(timer as MachineTimer);
      },
    };
  }

  get isPaused(): boolean {
    return this.timeline.now < this.pausedUntil;
  }

  get isSuspended(): boolean {
    return this.#suspendedAt !== Infinity;
  }

  /** The number of active timers. */
  get timers(): number {
    return this.#timers.size;
  }

  /** Runs this in the process: after it is resumed, if it is paused, and never if it is dead. */
  run(what: () => void): void {
    if (this.isDead) return;
    if (this.isPaused) this.#late.push(what);
    else what();
  }

  pause(duration: number): void {
    const until = this.timeline.now + duration;
    if (until <= this.pausedUntil) return;
    this.pausedUntil = until;
    this.timeline.at(until, () => {
      this.#resume();
    });
  }

  /** Suspends the machine: nothing runs, and its timers and its monotonic clock don't count the time. */
  suspend(duration: number): void {
    if (this.isSuspended) return;
    const { timeline } = this;
    this.#suspendedAt = timeline.now;
    this.wokenAt = timeline.now + duration;
    timeline.at(this.wokenAt, () => {
      this.#slept += duration;
      this.#suspendedAt = Infinity;
    });
    this.pause(duration);
    for (const timer of this.#timers) {
      const { event } = timer;
      // A timer without this was due in an earlier pause.
      if (event?.run === undefined) continue;
      timer.event = timeline.at(event.at + duration, event.run);
      timeline.cancel(event);
    }
  }

  sleep(duration: number): Promise<void> {
    return new Promise((resolve) => this.clock.setTimer(resolve, duration));
  }

  #resume(): void {
    if (this.isPaused) return;
    const late = this.#late;
    this.#late = [];
    // Each callback runs in its own turn, as Node runs timers and sockets.
    for (const what of late) {
      this.timeline.in(0, () => {
        this.run(what);
      });
    }
  }

  #setTimer(callback: () => void, delay: number): MachineTimer {
    const timer: MachineTimer = { event: undefined };
    this.#timers.add(timer);
    timer.event = this.timeline.in(delay, () => {
      this.run(() => {
        if (!this.#timers.delete(timer)) return;
        callback();
      });
    });
    return timer;
  }

  #clear(timer: MachineTimer): void {
    if (!this.#timers.delete(timer) || timer.event === undefined) return;
    this.timeline.cancel(timer.event);
  }
}
