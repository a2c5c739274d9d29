import type { LockEvent } from '../../api/lock-events.js';
import type { ProviderCore } from '../provider-core.js';
import { KeyQueue } from './key-queue.js';
import type { Waiter } from './waiter.js';

/** One provider's queues in this process: one per key with a holder or a waiter. */
export class KeyQueues {
  /**
   * Queues by key, in one table for each number of other keys that a caller holds. If each lock takes a connection from
   * a pool, the head of a queue may be waiting for a connection. A caller that already holds keys must not queue behind
   * it, or it would wait for its own connection.
   *
   * `Map` hashes with a per-process seed, so users who choose keys cannot provoke collisions.
   */
  readonly #tables: Map<string, KeyQueue>[] = [];
  /**
   * The queue that most recently became empty. It's kept until another one becomes empty, because emptying a `Map`
   * after each lock makes it reallocate.
   */
  #idle: KeyQueue | undefined;

  constructor(private readonly core: ProviderCore) {}

  /**
   * Returns a key's queue for a caller that holds `otherKeysHeld` other keys, after releasing the key's expired grants.
   */
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

  /** This application's waiting calls. */
  get waiting(): readonly Waiter[] {
    return this.#all().flatMap(({ waiters }) => waiters);
  }

  /** Dismisses all waiters, or only those whose callers hold no lock. */
  dismiss(which: 'all' | 'without-locks', errorFor: (subject: LockEvent) => Error): void {
    for (const waiter of this.waiting) {
      if (which === 'all' || !waiter.isUnderLock) waiter.dismiss(errorFor(waiter.subject));
    }
  }

  /**
   * Frees a key on the backend, if the backend supports it. This process stops handing off its grants of the key, and
   * renews them to detect the loss.
   */
  async forceRelease(key: string): Promise<boolean> {
    const held = this.#tables.flatMap((table) => table.get(key)?.held ?? []);
    for (const grant of held) grant.endCohort();
    const wasLocked = await this.core.backend.forceRelease?.(key);
    for (const grant of held) void this.core.watchdog.renew(grant);
    return wasLocked ?? false;
  }

  #tableOf(otherKeysHeld: number): Map<string, KeyQueue> {
    // The first caller may already hold several keys, so add all missing tables.
    while (this.#tables.length <= otherKeysHeld) this.#tables.push(new Map());
    return this.#tables[otherKeysHeld] as Map<string, KeyQueue>;
  }

  #all(): KeyQueue[] {
    return this.#tables.flatMap((queues) => [...queues.values()]);
  }

  /**
   * Sends all paused requests, because the backend is responding again. The oldest goes first, because a server that
   * lost its queue grants in order of arrival.
   */
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
