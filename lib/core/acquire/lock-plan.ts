import type { LockBusyError } from '../../api/errors.js';
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

/** A call does without its lock, which was busy. */
export function publishSkipped({ core, settings, origin }: LockPlan, { key }: LockBusyError): void {
  core.events.publish('skipped', { key: key ?? '', provider: core.name, mode: settings.mode, ...origin });
}
