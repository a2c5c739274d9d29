import type { LockEventPublisher } from './publisher.js';
import { safeCause } from '../../api/cause.js';
import type { Clock } from '../../api/clock.js';
import type { LockLogger } from '../../api/logger.js';

// A backend of which a part is down, such as one master of a Redis Cluster, fails and answers in turn, at every call.
const LOGGED_AT_MOST = 3;
const LOGGED_WITHIN = 60_000;

/**
 * Whether the backend of one provider answers, as far as is known. Reports once that it does not, and once that it does again;
 * the log has at most three outages a minute.
 */
export class Reachability {
  /** Since when it does not answer, on the monotonic clock. */
  #downSince: number | undefined;
  /** The outage is in the log. */
  #isLogged = false;
  /** When outages were logged lately, oldest first, on the monotonic clock. */
  #logged: number[] = [];

  constructor(
    private readonly provider: string,
    private readonly events: LockEventPublisher,
    private readonly logger: LockLogger,
    private readonly clock: Clock,
  ) {}

  /** Whether it answers, as far as is known. */
  get isUp(): boolean {
    return this.#downSince === undefined;
  }

  /** Since when it does not answer, on the monotonic clock; `Infinity` while it answers, as far as is known. */
  get downSince(): number {
    return this.#downSince ?? Infinity;
  }

  answered(): void {
    if (this.#downSince === undefined) return;
    this.#downSince = undefined;
    if (!this.#isLogged) return;
    this.#isLogged = false;
    // A warning as well, so that a filter that shows the first one shows its end.
    this.logger.warn(`Lock provider "${this.provider}" answers again.`);
  }

  failed(cause: unknown): void {
    if (this.#downSince === undefined) {
      this.#downSince = this.clock.now();
      this.events.publish('unavailable', { provider: this.provider, cause: safeCause(cause) });
    }
    // One that was not logged in time is logged later, if it lasts.
    if (this.#isLogged || !this.#mayLog()) return;
    this.#isLogged = true;
    const shown = safeCause(cause);
    const reason = shown instanceof Error ? `: ${shown.message}` : '';
    this.logger.warn(`Lock provider "${this.provider}" does not answer${reason}`);
  }

  #mayLog(): boolean {
    const now = this.clock.now();
    this.#logged = this.#logged.filter((at) => now - at < LOGGED_WITHIN);
    if (this.#logged.length >= LOGGED_AT_MOST) return false;
    this.#logged.push(now);
    return true;
  }
}
