import type { LimitTerms } from '../../../api/lock-options.js';
import type { Lease, LeaseHold } from './lease.js';
import { type LeaseTable, toMicroseconds } from './lease-table.js';

/** What is to become of the hold of one holder. */
interface Change {
  readonly holder: string;
  readonly edit: (hold: LeaseHold, serverTime: number) => readonly LeaseHold[];
  /** With whether there was such a hold. */
  readonly resolve: (hadIt: boolean) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * The holders of limited leases: a list in the row of the key, replaced as a whole.
 *
 * Each replacement writes a larger version and compares with the one that was read, so it never undoes another one. What it writes counts
 * from the server's time at the read, so leases are counted from the sending of that, one round trip earlier than those of exclusive locks.
 *
 * Renewals and releases that come while one of the same row is in flight share the next replacement: with one for each, sixteen holders
 * of one process would compete with each other (measured on MariaDB: 44 instead of 400 grants a second).
 */
export class LimitedLeases {
  /** By row: those for the next replacement. */
  readonly #waiting = new Map<string, Change[]>();

  constructor(private readonly leases: LeaseTable) {}

  /** Adds a holder for `duration` ms, if the row is still as it was seen. Answers its token. */
  async claim(
    name: string,
    seen: Lease,
    holder: string,
    limited: LimitTerms,
    duration: number,
  ): Promise<bigint | undefined> {
    const token = nextVersion(seen);
    const hold = { holder, token, limited, expires: seen.serverTime + toMicroseconds(duration) };
    return (await this.leases.replace(name, seen, token, [...seen.holds, hold])) ? token : undefined;
  }

  /** Renews a hold to `duration` ms from now. Answers whether it had not ended. */
  renew(name: string, holder: string, duration: number): Promise<boolean> {
    return this.#change(name, holder, (hold, serverTime) => [
      { ...hold, expires: serverTime + toMicroseconds(duration) },
    ]);
  }

  /** Ends a hold, or retains it for `keepFor` ms. Answers whether this holder had it. */
  release(name: string, holder: string, keepFor: number): Promise<boolean> {
    return this.#change(name, holder, (hold, serverTime) =>
      keepFor > 0 ? [{ ...hold, holder: undefined, expires: serverTime + toMicroseconds(keepFor) }] : [],
    );
  }

  #change(name: string, holder: string, edit: Change['edit']): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const change = { holder, edit, resolve, reject };
      const waiting = this.#waiting.get(name);
      if (waiting) {
        waiting.push(change);
        return;
      }
      this.#waiting.set(name, [change]);
      // The watchdog renews all that is due in one tick.
      queueMicrotask(() => void this.#work(name));
    });
  }

  async #work(name: string): Promise<void> {
    let changes: readonly Change[] = [];
    try {
      while ((changes = this.#waiting.get(name) ?? []).length > 0) {
        this.#waiting.set(name, []);
        await this.#replace(name, changes);
      }
    } catch (error) {
      // Those that wait would wait for a server that does not answer.
      for (const { reject } of [...changes, ...(this.#waiting.get(name) ?? [])]) reject(error);
    }
    this.#waiting.delete(name);
  }

  /** Again when another replacement was faster: of those that compete one always succeeds. */
  async #replace(name: string, changes: readonly Change[]): Promise<void> {
    for (;;) {
      const seen = await this.leases.look(name);
      let holds = seen?.holds ?? [];
      const hadIt = changes.map(({ holder, edit }) => {
        const own = holds.find((hold) => hold.holder === holder);
        if (!seen || !own) return false;
        holds = holds.flatMap((hold) => (hold === own ? edit(own, seen.serverTime) : [hold]));
        return true;
      });
      const isUnchanged = !seen || !hadIt.includes(true);
      if (!isUnchanged && !(await this.leases.replace(name, seen, nextVersion(seen), holds))) continue;
      changes.forEach(({ resolve }, index) => {
        resolve(hadIt[index] === true);
      });
      return;
    }
  }
}

function nextVersion({ version, serverTime }: Lease): bigint {
  const time = BigInt(serverTime);
  return version >= time ? version + 1n : time;
}
