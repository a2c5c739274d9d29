import type { SwitchRecord } from './switch-record.js';

// Clocks of two machines may run at rates that differ by 1 %; 2 ms for the granularity of timers. As in Redlock's validity.
const SLOWEST = 0.99;
const FASTEST = 1.01;
const GRAIN = 2;

/**
 * The rule by which no two engines ever grant at the same time, as one process applies it. A value: each step makes
 * another one.
 *
 * A *confirmation* is an acknowledged write to the record that left the epoch as it was. Locks granted in an epoch are
 * believed for less than `window` ms from the sending of the last one. A switch is a write to the same record, so each
 * confirmation of the old epoch was executed, and therefore sent, before it. Whoever learns of the switch learns of it
 * after that write; when more than `window` ms have passed since then on any clock, the last lock of the old epoch is
 * over everywhere, also in a process that is cut off and knows nothing. Only then does the new engine grant. The first
 * that has waited writes `settled`, which spares those who come later the wait.
 *
 * Processes may have different windows, as in a deployment that changes it: none confirms before its own stands in the
 * record, which keeps the longest, and that is what is waited for.
 *
 * No clocks are compared: each bound is counted on the monotonic clock of one process, between two things that this
 * process did or saw. What it rests on: writes to the record stand in one order and are never lost, and clocks run at
 * rates within 1 % of each other.
 */
export class Agreement {
  private constructor(
    /** For how long a confirmation of this process is good, in ms. */
    readonly window: number,
    /** What stands in the record, as far as is known. */
    readonly record: SwitchRecord | undefined,
    /** When this process learned of the epoch. */
    readonly learnedAt: number,
    /** When the last write was sent that has confirmed the epoch. */
    private readonly confirmedAt: number,
  ) {}

  /** That of a process that has not seen the record yet. */
  static unknown(window: number): Agreement {
    return new Agreement(window, undefined, 0, -Infinity);
  }

  /** The record was found to be this at `now`. */
  learned(record: SwitchRecord, now: number): Agreement {
    const { window, learnedAt, confirmedAt } = this;
    // An answer that was late on its way.
    if (record.epoch < this.epoch) return this;
    if (record.epoch > this.epoch) return new Agreement(window, record, now, -Infinity);
    return new Agreement(window, record, learnedAt, confirmedAt);
  }

  /** A write that was sent at `sentAt` has left this record. */
  confirmed(record: SwitchRecord, sentAt: number, now: number): Agreement {
    const { window, record: known, learnedAt } = this.learned(record, now);
    return known === record ? new Agreement(window, record, learnedAt, sentAt) : this;
  }

  /** What is confirmed counts no more: a switch is about to be asked for, or time has passed that no clock has counted. */
  dropped(): Agreement {
    return new Agreement(this.window, this.record, this.learnedAt, -Infinity);
  }

  /** 0 while the record is not known. */
  get epoch(): number {
    return this.record?.epoch ?? 0;
  }

  /** Until when locks of `epoch` are believed, on the monotonic clock; in the past for every epoch but the confirmed one. */
  validUntil(epoch: number): number {
    return epoch === this.epoch ? this.confirmedAt + this.window * SLOWEST - GRAIN : -Infinity;
  }

  /** When the locks of earlier epochs are over, on the monotonic clock. */
  get settlesAt(): number {
    if (!this.record || this.record.settled) return -Infinity;
    return this.learnedAt + this.record.window * FASTEST + GRAIN;
  }
}
