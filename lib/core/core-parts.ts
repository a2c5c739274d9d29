import type { Clock } from '../api/clock.js';
import type { Instance } from '../api/lock-provider.js';
import type { LockLogger } from '../api/logger.js';
import type { Random } from '../api/random.js';
import type { LockEventPublisher } from './events/publisher.js';
import type { SharedInsight } from './insight/lock-insight.js';
import type { SuspensionDetector } from './toolkit/suspension.js';

/** The parts that all providers of one application share. */
export interface CoreParts {
  readonly namespace: string;
  readonly instance: Instance;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  readonly events: LockEventPublisher;
  readonly suspension: SuspensionDetector;
  readonly insight: SharedInsight;
}
