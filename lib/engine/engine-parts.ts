import type { LockEventPublisher } from '../lock/lock-events.js';
import type { Clock } from './clock.js';
import type { LockLogger } from './logger.js';
import type { Random } from './random.js';
import type { SuspensionDetector } from './suspension.js';

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
