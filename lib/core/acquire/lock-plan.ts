import type { LockEvent } from '../../api/lock-events.js';
import type { LockOrigin } from '../events/subject.js';
import type { ProviderCore } from '../provider-core.js';
import type { LockSettings } from './lock-settings.js';
import type { KeyQueues } from './key-queues.js';

/** Options that were checked against their provider, ready for any number of calls. */
export interface LockPlan {
  readonly core: ProviderCore;
  readonly queues: KeyQueues;
  readonly settings: LockSettings;
  readonly origin: LockOrigin;
}

/** A lock of this plan, for events and messages. */
export function subjectOf(key: string, { core, settings, origin }: LockPlan): LockEvent {
  return { key, provider: core.name, mode: settings.mode, ...origin };
}

/** A call does without its lock, which was busy. */
export function publishSkipped(plan: LockPlan, key: string | null): void {
  plan.core.events.publish('skipped', subjectOf(key ?? '', plan));
}
