/** The ticks of a job: the times at which it is due, in ms since 1970. They depend on no clock, so all instances name the same ones. */
export interface Schedule {
  /** The expression and its zone, such as `0 3 * * * (Europe/Berlin)`: schedules with one text have the same ticks. */
  readonly text: string;
  /** The latest tick that is not after this time, or `undefined` if there is none. */
  latest(time: number): number | undefined;
  /** The tick after this one, or after a time before the first tick; `undefined` if there is none. */
  next(tick: number): number | undefined;
}

/** A job that this process can run, for operators. */
export interface LocalJob {
  /** The tick after this time, if it is known here when the job is due. */
  nextTick(time: number): number | undefined;
  /** Runs it without a tick. Answers whether it ran: not while its lock is busy. @throws what it throws */
  runNow(): Promise<boolean>;
}
