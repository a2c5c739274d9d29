import type { LockEventPublisher } from '../lock/lock-events.js';
import type { LockLogger } from './logger.js';

/** Whether the backend of one provider answers, as far as is known. Says once that it does not, and once that it does again. */
export class Reachability {
  #answers = true;

  constructor(
    private readonly provider: string,
    private readonly events: LockEventPublisher,
    private readonly logger: LockLogger,
  ) {}

  answered(): void {
    if (this.#answers) return;
    this.#answers = true;
    // A warning as well: whoever has read the first one wants this one.
    this.logger.warn(`Lock provider "${this.provider}" answers again.`);
  }

  failed(cause: unknown): void {
    if (!this.#answers) return;
    this.#answers = false;
    this.events.publish('unavailable', () => ({ provider: this.provider, cause }));
    const reason = cause instanceof Error ? `: ${cause.message}` : '';
    this.logger.warn(`Lock provider "${this.provider}" does not answer${reason}`);
  }
}
