import type { Session } from './session.js';

/** How long a folder is kept that nobody here uses, in ms: making one costs a write, so a lock that comes and goes keeps its own. */
const KEEP_FOR = 5_000;
/** How many are kept at most. */
const KEEP = 10_000;
/** How many are removed in one go. */
const BATCH = 200;

/**
 * The folders that this process has used lately. They are persistent nodes, one for each key, and are removed when they are
 * empty and idle: the server does it if there are children, and then leaves it to who uses them. Who finds a folder gone
 * makes it again, so no two processes have to agree.
 */
export class Folders {
  readonly #usedAt = new Map<string, number>();
  #sweeping = false;

  /** Notes its use. Answers whether it was made or used lately, so that it is probably there. */
  use(folder: string, now: number): boolean {
    const isKnown = this.#usedAt.delete(folder);
    this.#usedAt.set(folder, now);
    return isKnown;
  }

  /** Removes those that were idle for long, and the oldest of too many. */
  async sweep(session: Session, now: number): Promise<void> {
    if (this.#sweeping) return;
    this.#sweeping = true;
    try {
      for (let batch = this.#idle(now); batch.length > 0 && session.isUp; batch = this.#idle(now)) {
        await this.#remove(session, batch);
      }
    } finally {
      this.#sweeping = false;
    }
  }

  /** Removes all that are empty. */
  async close(session: Session): Promise<void> {
    while (this.#usedAt.size > 0 && session.isUp) await this.#remove(session, [...this.#usedAt.keys()].slice(0, BATCH));
  }

  async #remove(session: Session, folders: readonly string[]): Promise<void> {
    for (const folder of folders) this.#usedAt.delete(folder);
    // Used again, gone, or not ours to remove: all the same to us.
    await Promise.allSettled(folders.map((folder) => session.remove(folder)));
  }

  /** From the one that was used the longest ago on. */
  #idle(now: number): string[] {
    const idle: string[] = [];
    let excess = this.#usedAt.size - KEEP;
    for (const [folder, usedAt] of this.#usedAt) {
      if (idle.length === BATCH || (excess <= 0 && now - usedAt < KEEP_FOR)) break;
      idle.push(folder);
      excess -= 1;
    }
    return idle;
  }
}
