import { nextTick } from 'node:process';
import { type Clock } from '../../../api/clock.js';
import { type RenewOutcome } from '../../../api/lock-provider.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import type { HeldLease, LeaseTable } from './lease-table.js';

interface DueRenewal {
  readonly held: HeldLease;
  /** The lease that its holder asked for, in ms. */
  readonly lease: number;
  readonly resolve: (outcome: RenewOutcome) => void;
}

/** Sends the renewals of one tick together: one statement for each duration, and nearly always all have the same. */
export class Renewals {
  #due = new Map<number, DueRenewal[]>();

  constructor(
    private readonly clock: Clock,
    private readonly leases: LeaseTable,
  ) {}

  /** @param duration for how many ms the row is kept: the lease, or what is left of a `minHold` if that is longer */
  add(held: HeldLease, lease: number, duration: number): Promise<RenewOutcome> {
    return new Promise((resolve) => {
      if (this.#due.size === 0) nextTick(this.#send);
      const due = { held, lease, resolve };
      const together = this.#due.get(duration);
      if (together) together.push(due);
      else this.#due.set(duration, [due]);
    });
  }

  readonly #send = (): void => {
    const groups = this.#due;
    this.#due = new Map();
    for (const [duration, renewals] of groups) void this.#renew(renewals, duration);
  };

  async #renew(renewals: readonly DueRenewal[], duration: number): Promise<void> {
    const sentAt = this.clock.now();
    let renewed: ReadonlySet<string> | undefined;
    try {
      renewed = await this.leases.renew(
        renewals.map(({ held }) => held),
        duration,
      );
    } catch {
      // The database did not answer, so nothing is known.
    }
    for (const { held, lease, resolve } of renewals) {
      if (!renewed) resolve('unknown');
      else resolve(renewed.has(held.holder) ? { validUntil: validUntil(sentAt, lease) } : 'lost');
    }
  }
}
