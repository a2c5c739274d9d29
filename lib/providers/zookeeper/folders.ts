import type { Session } from './session.js';

/** How long an unused folder is kept, in ms: creating one costs a write, so a lock that comes and goes keeps its own. */
const KEEP_FOR = 5_000;
/** How many are kept at most. */
const KEEP = 10_000;
/** How many are removed together. */
const BATCH = 200;

/**
 * The folders that this process has used lately. They are persistent nodes, one for each key, and this process tries to remove those
 * that are idle: the server refuses while a folder has children, and then the processes that use it remove it later. A process that
 * finds a folder gone creates it again, so no two processes have to agree.
 */
export class Folders {
  readonly #usedAt = new Map<string, number>();
  #sweeping = false;

  /** Notes its use. Answers whether it was created or used lately, so that it probably exists. */
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
    // A folder that is used again, gone, or not ours to remove needs nothing more.
    await Promise.allSettled(folders.map((folder) => session.client.remove(folder)));
  }

  /** The least recently used first. */
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
