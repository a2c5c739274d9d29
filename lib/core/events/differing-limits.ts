import type { LockEvent } from '../../api/lock-events.js';
import type { LockLogger } from '../../api/logger.js';
import type { LockEventPublisher } from './publisher.js';
import { nameOf } from './subject.js';

// Limits may be computed, so there may be any number of them.
const REMEMBERED = 100;

/**
 * Reports callers that ask for one key with different limits, once for each pair. A rolling deployment that changes a limit does so for a
 * while; two services that differ permanently are a mistake.
 */
export class DifferingLimits {
  readonly #reported = new Set<string>();

  constructor(
    private readonly events: LockEventPublisher,
    private readonly logger: LockLogger,
  ) {}

  /** @param other the smallest limit of the holders, if that is not `limit` */
  report(subject: LockEvent, limit: number, other: number): void {
    const pair = `${limit} ${other}`;
    if (this.#reported.has(pair) || this.#reported.size === REMEMBERED) return;
    this.#reported.add(pair);
    this.events.publish('limits-differ', () => ({ ...subject, limit, other }));
    this.logger.warn(
      `${nameOf(subject)} was asked for with limit ${limit} while another holder has limit ${other}: the smaller one applies; use the same limit everywhere. (Warned once for each pair of limits.)`,
    );
  }
}
