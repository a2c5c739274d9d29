import type { LockEvent } from '../../api/lock-events.js';
import type { ProviderCore } from '../provider-core.js';
import { KeyQueue } from './key-queue.js';
import type { Waiter } from './waiter.js';

/** The queues of one provider in this process: one for each key that is held or waited for. */
export class KeyQueues {
  /**
   * By how many other keys the callers hold. Where each lock takes a connection of a pool, the first of a queue may wait for one. Behind one that holds
   * fewer keys, a caller would wait for its own connection to become free.
   *
   * A `Map` hashes with a seed of its process, so callers who choose keys cannot make many of them collide.
   */
  readonly #tables: Map<string, KeyQueue>[] = [];
  /** The last one that became empty. It stays until the next one does: a `Map` that is empty after each lock allocates its table each time. */
  #idle: KeyQueue | undefined;

  constructor(private readonly core: ProviderCore) {}

  /** The queue of a key for one more caller that holds so many others. What this process holds of the key and is over by the clock is given back before. */
  of(key: string, otherKeysHeld: number): KeyQueue {
    const queues = this.#tables[otherKeysHeld] ?? this.#tableOf(otherKeysHeld);
    this.core.memberRequests.expire();
    queues.get(key)?.expireHeld();
    let queue = queues.get(key);
    if (queue === undefined) {
      queue = new KeyQueue(key, otherKeysHeld, this.core, this.#onEmpty);
      queues.set(key, queue);
    }
    return queue;
  }

  /** The calls of this application that wait. */
  get waiting(): readonly Waiter[] {
    return this.#all().flatMap(({ waiters }) => waiters);
  }

  /** Sends waiters away: all, or those that hold nothing. */
  dismiss(which: 'all' | 'without-locks', errorFor: (subject: LockEvent) => Error): void {
    for (const waiter of this.waiting) {
      if (which === 'all' || !waiter.isUnderLock) waiter.dismiss(errorFor(waiter.subject));
    }
  }

  /** Frees a key on the backend, if that can. What this process holds of it is not handed on, and found to be lost. */
  async forceRelease(key: string): Promise<boolean> {
    const held = this.#tables.flatMap((table) => table.get(key)?.held ?? []);
    for (const grant of held) grant.endCohort();
    const wasLocked = await this.core.backend.forceRelease?.(key);
    for (const grant of held) void this.core.watchdog.renew(grant);
    return wasLocked ?? false;
  }

  #tableOf(otherKeysHeld: number): Map<string, KeyQueue> {
    // Without a gap, whatever the first number is.
    while (this.#tables.length <= otherKeysHeld) this.#tables.push(new Map());
    return this.#tables[otherKeysHeld] as Map<string, KeyQueue>;
  }

  #all(): KeyQueue[] {
    return this.#tables.flatMap((queues) => [...queues.values()]);
  }

  /** The backend answers again. The oldest ask first: where the queue was lost, the first that asks has the lock. */
  hurry(): void {
    const pausing = this.#all().filter(({ isPausing }) => isPausing);
    for (const queue of pausing.sort((one, other) => one.since - other.since)) queue.hurry();
  }

  readonly #onEmpty = (queue: KeyQueue): void => {
    const idle = this.#idle;
    this.#idle = queue;
    if (idle === undefined || idle === queue || !idle.isEmpty) return;
    const table = this.#tables[idle.otherKeysHeld];
    if (table?.get(idle.key) === idle) table.delete(idle.key);
  };
}
