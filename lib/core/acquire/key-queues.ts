import type { LockEvent } from '../../api/lock-events.js';
import type { ProviderCore } from '../provider-core.js';
import { KeyQueue } from './key-queue.js';
import type { Waiter } from './waiter.js';

/** The queues of one provider in this process: one for each key that has a holder or a waiter. */
export class KeyQueues {
  /**
   * The queues by key, in one table for each number of other keys that the callers hold. If each lock takes a connection of a pool, the first waiter of
   * a queue may wait for a connection. A caller that holds more keys must not queue behind it, or it would wait for its own connection to become free.
   *
   * A `Map` hashes with a seed of its process, so users who choose keys cannot make many of them collide.
   */
  readonly #tables: Map<string, KeyQueue>[] = [];
  /** The queue that became empty last. It stays until the next one does, because a `Map` that is emptied after each lock allocates its table each time. */
  #idle: KeyQueue | undefined;

  constructor(private readonly core: ProviderCore) {}

  /** The queue of a key for a caller that holds `otherKeysHeld` other keys. Expired grants of the key are released first. */
  of(key: string, otherKeysHeld: number): KeyQueue {
    const queues = this.#tables[otherKeysHeld] ?? this.#tableOf(otherKeysHeld);
    this.core.memberRequests?.expire();
    queues.get(key)?.expireHeld();
    let queue = queues.get(key);
    if (queue === undefined) {
      queue = new KeyQueue(key, otherKeysHeld, this.core, this.#onEmpty);
      queues.set(key, queue);
    }
    return queue;
  }

  /** All waiting calls of this application. */
  get waiting(): readonly Waiter[] {
    return this.#all().flatMap(({ waiters }) => waiters);
  }

  /** Dismisses waiters: all, or only those under no lock. */
  dismiss(which: 'all' | 'without-locks', errorFor: (subject: LockEvent) => Error): void {
    for (const waiter of this.waiting) {
      if (which === 'all' || !waiter.isUnderLock) waiter.dismiss(errorFor(waiter.subject));
    }
  }

  /** Frees a key on the backend, if the backend can. Grants that this process holds for it are not handed off any more, and their renewal finds the loss. */
  async forceRelease(key: string): Promise<boolean> {
    const held = this.#tables.flatMap((table) => table.get(key)?.held ?? []);
    for (const grant of held) grant.endCohort();
    const wasLocked = await this.core.backend.forceRelease?.(key);
    for (const grant of held) void this.core.watchdog.renew(grant);
    return wasLocked ?? false;
  }

  #tableOf(otherKeysHeld: number): Map<string, KeyQueue> {
    // The array must have no gaps, whatever the first number is.
    while (this.#tables.length <= otherKeysHeld) this.#tables.push(new Map());
    return this.#tables[otherKeysHeld] as Map<string, KeyQueue>;
  }

  #all(): KeyQueue[] {
    return this.#tables.flatMap((queues) => [...queues.values()]);
  }

  /** Sends the pausing requests, because the backend answers again. The oldest goes first: if the server lost its queue, the first request gets the lock. */
  retryNow(): void {
    const pausing = this.#all().filter(({ isPausing }) => isPausing);
    for (const queue of pausing.sort((one, other) => one.since - other.since)) queue.retryNow();
  }

  readonly #onEmpty = (queue: KeyQueue): void => {
    const idle = this.#idle;
    this.#idle = queue;
    if (idle === undefined || idle === queue || !idle.isEmpty) return;
    const table = this.#tables[idle.otherKeysHeld];
    if (table?.get(idle.key) === idle) table.delete(idle.key);
  };
}
