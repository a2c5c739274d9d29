import type { Session } from './session.js';

/** How long to keep unused folders: creating one costs a write, so a lock used on and off should keep its folder. */
const KEEP_FOR_MS = 5_000;
const MAX_FOLDERS = 10_000;
const REMOVALS_PER_BATCH = 200;

/**
 * The folders this process used recently. Each is a persistent node for one key. This process tries to remove idle
 * ones. The server rejects the removal while a folder has children; the children's processes remove it later. A process
 * that finds a folder missing recreates it, so processes don't have to coordinate.
 */
export class Folders {
  readonly #usedAt = new Map<string, number>();
  #sweeping = false;

  /** Records a use of the folder. Returns whether it was used recently and so probably exists. */
  use(folder: string, now: number): boolean {
    const isKnown = this.#usedAt.delete(folder);
    this.#usedAt.set(folder, now);
    return isKnown;
  }

  /** Removes idle folders, and the least recently used ones if there are too many. */
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

  /** Removes all empty folders. */
  async close(session: Session): Promise<void> {
    while (this.#usedAt.size > 0 && session.isUp)
      await this.#remove(session, [...this.#usedAt.keys()].slice(0, REMOVALS_PER_BATCH));
  }

  async #remove(session: Session, folders: readonly string[]): Promise<void> {
    for (const folder of folders) this.#usedAt.delete(folder);
    // A failure can be ignored: the folder is in use again, already gone, or not ours to remove.
    await Promise.allSettled(folders.map((folder) => session.client.remove(folder)));
  }

  /** Least recently used first. */
  #idle(now: number): string[] {
    const idle: string[] = [];
    let excess = this.#usedAt.size - MAX_FOLDERS;
    for (const [folder, usedAt] of this.#usedAt) {
      if (idle.length === REMOVALS_PER_BATCH || (excess <= 0 && now - usedAt < KEEP_FOR_MS)) break;
      idle.push(folder);
      excess -= 1;
    }
    return idle;
  }
}
