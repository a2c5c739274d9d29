import type { LockEventPublisher } from './publisher.js';
import { safeCause } from '../../api/cause.js';
import type { Clock } from '../../api/clock.js';
import type { LockLogger } from '../../api/logger.js';

// A backend that is partly down, such as a Redis Cluster missing one of its masters, may fail one call and respond to
// the next.
const MAX_LOGGED = 3;
const LOGGED_WITHIN_MS = 60_000;

/**
 * Whether a provider's backend is responding, as far as this process knows. Logs the start and end of each outage, but
 * at most three outages per minute.
 */
export class Reachability {
  #downSince: number | undefined;
  /** Whether the current outage has been logged. */
  #isLogged = false;
  /** When the latest outages were logged, oldest first. */
  #logged: number[] = [];

  constructor(
    private readonly provider: string,
    private readonly events: LockEventPublisher,
    private readonly logger: LockLogger,
    private readonly clock: Clock,
  ) {}

  get isUp(): boolean {
    return this.#downSince === undefined;
  }

  /** When the backend stopped responding; `Infinity` while it is responding. */
  get downSince(): number {
    return this.#downSince ?? Infinity;
  }

  answered(): void {
    if (this.#downSince === undefined) return;
    this.#downSince = undefined;
    if (!this.#isLogged) return;
    this.#isLogged = false;
    // Logged at the same level as the start of the outage so log filters show both or neither.
    this.logger.warn(`Lock provider "${this.provider}" is responding again.`);
  }

  failed(cause: unknown): void {
    if (this.#downSince === undefined) {
      this.#downSince = this.clock.now();
      this.events.publish('unavailable', { provider: this.provider, cause: safeCause(cause) });
    }
    // An outage whose log message was rate-limited is logged later if it lasts.
    if (this.#isLogged || !this.#mayLog()) return;
    this.#isLogged = true;
    const shown = safeCause(cause);
    const reason = shown instanceof Error ? `: ${shown.message}` : '';
    this.logger.warn(`Lock provider "${this.provider}" is not responding${reason}`);
  }

  #mayLog(): boolean {
    const now = this.clock.now();
    this.#logged = this.#logged.filter((at) => now - at < LOGGED_WITHIN_MS);
    if (this.#logged.length >= MAX_LOGGED) return false;
    this.#logged.push(now);
    return true;
  }
}
