import type { Command } from './command.js';
import { holderOf } from './lock-script.js';

/**
 * How many releases are remembered for one node at most. A node that went down can have as many votes as locks were held or asked for then.
 * Beyond this bound the oldest are forgotten, and their votes end with their leases.
 */
const MOST = 10_000;

/** A release whose outcome is unknown. */
export type PendingRelease = Pick<Command, 'lock' | 'args'>;

/** The releases that one node has not answered, at most one for each request: the votes that they end would block their keys for a lease. */
export class PendingReleases {
  readonly #byHolder = new Map<string, PendingRelease>();

  get size(): number {
    return this.#byHolder.size;
  }

  add({ lock, args }: PendingRelease): void {
    const holder = holderOf(args);
    // A later one ends at least the votes that an earlier one does.
    this.#byHolder.set(holder, { lock, args });
    if (this.#byHolder.size <= MOST) return;
    for (const oldest of this.#byHolder.keys()) {
      this.#byHolder.delete(oldest);
      return;
    }
  }

  /** Removes all of them and returns them, to be sent again. */
  take(): PendingRelease[] {
    const all = [...this.#byHolder.values()];
    this.#byHolder.clear();
    return all;
  }
}
