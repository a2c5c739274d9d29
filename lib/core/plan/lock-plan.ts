import type { LockEvent, SkipReason } from '../../api/lock-events.js';
import type { LockCapabilities } from '../../api/lock-provider.js';
import type { LockOrigin } from '../events/subject.js';
import type { ProviderCore } from '../provider-core.js';
import type { LockSettings } from './lock-settings.js';

/** Options that were checked against their provider. A plan can serve any number of calls. */
export interface LockPlan {
  readonly core: ProviderCore;
  readonly settings: LockSettings;
  readonly origin: LockOrigin;
}

/** A plan as shown in reports. All times are in ms. */
export interface LockDescription extends LockOrigin {
  readonly provider: string;
  /** The provider's class. */
  readonly kind: string;
  readonly capabilities: LockCapabilities;
  /** Whether the provider stores the records that jobs with ticks need. */
  readonly records: boolean;
  readonly wait: number;
  /** `undefined` if locks live as long as the provider's session. */
  readonly lease: number | undefined;
  readonly minHold: number;
}

export function describe({ core, settings, origin }: LockPlan): LockDescription {
  const { name: provider, kind, capabilities } = core;
  const { wait, minHold } = settings;
  const lease = capabilities.lease === 'per-lock' ? settings.lease : undefined;
  const records = core.backend.records !== undefined;
  return { ...origin, provider, kind, capabilities, records, wait, lease, minHold };
}

/** Describes the lock for a plan and a key in events and messages. */
export function subjectOf(key: string, { core, settings, origin }: LockPlan): LockEvent {
  return { key, provider: core.name, mode: settings.mode, ...origin };
}

/** Reports that a call or job won't run. */
export function publishSkipped(plan: LockPlan, key: string | null, reason: SkipReason): void {
  plan.core.events.publish('skipped', { ...subjectOf(key ?? '', plan), reason });
}
