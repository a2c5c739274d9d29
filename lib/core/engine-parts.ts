import type { LockEventPublisher } from './events/publisher.js';
import type { Clock } from '../api/clock.js';
import type { LockLogger } from '../api/logger.js';
import type { Random } from '../api/random.js';
import type { SuspensionDetector } from './toolkit/suspension.js';

/** What the engine of one application shares among its providers. */
export interface EngineParts {
  readonly namespace: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  readonly events: LockEventPublisher;
  readonly suspension: SuspensionDetector;
  readonly maxWaiters: number;
}
