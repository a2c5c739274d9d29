import type { LockEventPublisher } from '../lock/lock-events.js';
import type { LockLogger } from './logger.js';

/** Whether the backend of one provider answers, as far as is known. Says once that it does not, until it has answered again. */
export class Reachability {
  #answers = true;

  constructor(
    private readonly provider: string,
    private readonly events: LockEventPublisher,
    private readonly logger: LockLogger,
  ) {}

  answered(): void {
    this.#answers = true;
  }

  failed(cause: unknown): void {
    if (!this.#answers) return;
    this.#answers = false;
    this.events.publish('unavailable', () => ({ provider: this.provider, cause }));
    const reason = cause instanceof Error ? `: ${cause.message}` : '';
    this.logger.warn(`Lock provider "${this.provider}" does not answer${reason}`);
  }
}
