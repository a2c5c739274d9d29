import { validUntil } from '../../core/toolkit/validity.js';
import type { EpochRecord } from './epoch-record.js';

// Mirrors the margin in `validUntil`: two machines' clock rates may differ by 1 %, and timers have a resolution of 1
// ms.
const FASTEST = 1.01;
const GRANULARITY = 2;

/**
 * The rule, as applied by one process, that keeps two members from granting locks at the same time. Immutable: each
 * step returns a new value.
 *
 * A *confirmation* is an acknowledged write to the record that left the epoch unchanged. A lock granted in an epoch is
 * valid for less than `window` ms after the last confirmation was sent. A switch is a write to the same record, so
 * every confirmation of the old epoch was executed, and therefore sent, before the switch. A process learns of the
 * switch after that write. Once more than `window` ms have passed since then on any clock, the last lock of the old
 * epoch has ended everywhere, even in a process that is cut off and hasn't seen the switch. Only then does the new
 * member grant locks. The first process to finish waiting writes `settled`, so later ones don't have to wait.
 *
 * Processes may have different windows, for example during a rollout that changes the window. No process confirms
 * before the record contains its own window. The record keeps the longest window, and processes wait that long.
 *
 * No clocks are compared: each bound is measured on one process's monotonic clock, between two events in that process.
 * The rule relies on two facts: writes to the record are ordered and never lost, and clock rates differ by at
 * most 1 %.
 */
export class Confirmation {
  private constructor(
    /** How long this process's confirmations are valid, in ms. */
    readonly window: number,
    /** The record as last seen. */
    readonly record: EpochRecord | undefined,
    /** When this process learned of the epoch. */
    readonly learnedAt: number,
    /** When the last write that confirmed the epoch was sent. */
    readonly confirmedAt: number,
  ) {}

  /** The state of a process that hasn't seen the record yet. */
  static unknown(window: number): Confirmation {
    return new Confirmation(window, undefined, 0, -Infinity);
  }

  /** The state after reading or writing this record at `now`. */
  learned(record: EpochRecord, now: number): Confirmation {
    const { window, learnedAt, confirmedAt } = this;
    // A late answer.
    if (record.epoch < this.epoch) return this;
    if (record.epoch > this.epoch) return new Confirmation(window, record, now, -Infinity);
    return new Confirmation(window, record, learnedAt, confirmedAt);
  }

  /** The state after a write sent at `sentAt` resulted in this record. */
  confirmed(record: EpochRecord, sentAt: number, now: number): Confirmation {
    const { window, record: known, learnedAt } = this.learned(record, now);
    return known === record ? new Confirmation(window, record, learnedAt, sentAt) : this;
  }

  /** Ends the confirmation, because a switch is about to be sent or the machine was suspended. */
  dropped(): Confirmation {
    return new Confirmation(this.window, this.record, this.learnedAt, -Infinity);
  }

  /** 0 until the record is known. */
  get epoch(): number {
    return this.record?.epoch ?? 0;
  }

  /** When `epoch`'s locks stop being valid; in the past for any epoch but the confirmed one. */
  validUntil(epoch: number): number {
    return epoch === this.epoch ? validUntil(this.confirmedAt, this.window) : -Infinity;
  }

  /** When all locks of earlier epochs will have ended. */
  get settlesAt(): number {
    if (!this.record || this.record.settled) return -Infinity;
    return this.learnedAt + this.record.window * FASTEST + GRANULARITY;
  }
}
