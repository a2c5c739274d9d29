import { validUntil } from '../../core/toolkit/validity.js';
import type { EpochRecord } from './epoch-record.js';

// The counterpart of the margin in `validUntil`: clocks of two machines may run at rates that differ by 1 %, and timers count in ms.
const FASTEST = 1.01;
const GRANULARITY = 2;

/**
 * The rule by which two members never grant at the same time, as one process applies it. An immutable value: each step returns a new
 * one.
 *
 * A *confirmation* is an acknowledged write to the record that left the epoch as it was. A lock that was granted in an epoch is valid
 * for less than `window` ms from the send time of the last confirmation. A switch is a write to the same record, so every confirmation
 * of the old epoch was executed, and therefore sent, before the switch. A process learns of the switch after that write. When more than
 * `window` ms have passed since then on any clock, the last lock of the old epoch has ended everywhere, also in a process that is cut
 * off and has not seen the switch. Only then does the new member grant. The first process that has waited writes `settled`, so
 * processes that come later need not wait.
 *
 * Processes may have different windows, as in a deployment that changes it. No process confirms before the record contains its own
 * window. The record keeps the longest, and processes wait for that.
 *
 * No clocks are compared: each bound is counted on the monotonic clock of one process, between two things that this process did or saw.
 * The rule relies on two facts: writes to the record have one order and are never lost, and clocks run at rates within 1 % of each
 * other.
 */
export class Confirmation {
  private constructor(
    /** How long a confirmation of this process is valid, in ms. */
    readonly window: number,
    /** The record as it was last seen. */
    readonly record: EpochRecord | undefined,
    /** When this process learned of the epoch, on the monotonic clock. */
    readonly learnedAt: number,
    /** The send time of the last write that has confirmed the epoch. */
    readonly confirmedAt: number,
  ) {}

  /** That of a process that has not seen the record yet. */
  static unknown(window: number): Confirmation {
    return new Confirmation(window, undefined, 0, -Infinity);
  }

  /** The record was found to be this at `now`. */
  learned(record: EpochRecord, now: number): Confirmation {
    const { window, learnedAt, confirmedAt } = this;
    // An answer that came late.
    if (record.epoch < this.epoch) return this;
    if (record.epoch > this.epoch) return new Confirmation(window, record, now, -Infinity);
    return new Confirmation(window, record, learnedAt, confirmedAt);
  }

  /** A write that was sent at `sentAt` has left this record. */
  confirmed(record: EpochRecord, sentAt: number, now: number): Confirmation {
    const { window, record: known, learnedAt } = this.learned(record, now);
    return known === record ? new Confirmation(window, record, learnedAt, sentAt) : this;
  }

  /** The confirmation ends: a switch is about to be sent, or the machine was suspended. */
  dropped(): Confirmation {
    return new Confirmation(this.window, this.record, this.learnedAt, -Infinity);
  }

  /** 0 while the record is not known. */
  get epoch(): number {
    return this.record?.epoch ?? 0;
  }

  /** Until when locks of `epoch` are valid, on the monotonic clock; in the past for every epoch but the confirmed one. */
  validUntil(epoch: number): number {
    return epoch === this.epoch ? validUntil(this.confirmedAt, this.window) : -Infinity;
  }

  /** When all locks of earlier epochs have ended, on the monotonic clock. */
  get settlesAt(): number {
    if (!this.record || this.record.settled) return -Infinity;
    return this.learnedAt + this.record.window * FASTEST + GRANULARITY;
  }
}
