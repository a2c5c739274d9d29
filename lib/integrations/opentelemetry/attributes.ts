import type { Attributes } from '@opentelemetry/api';
import { LockError } from '../../api/errors.js';
import { isBusy } from '../../api/is-busy.js';
import type { AcquireTrace, ContentionTrace, HoldTrace } from '../../api/lock-traces.js';
import type { LockEvent } from '../../api/lock-events.js';

/**
 * The names that spans and metrics use for locks. OpenTelemetry has no conventions for locks, so all names
 * except `code.function.name` and `error.type`, which it defines, are in our own namespace. They are a proposal and may
 * change once there is a convention.
 */
export const ATTRIBUTE = {
  blockedBy: 'distributed_lock.blocked_by',
  holderInstance: 'distributed_lock.holder.instance',
  holderMethod: 'distributed_lock.holder.method',
  key: 'distributed_lock.key',
  link: 'distributed_lock.link',
  lossReason: 'distributed_lock.loss.reason',
  mode: 'distributed_lock.mode',
  outcome: 'distributed_lock.outcome',
  provider: 'distributed_lock.provider',
  resignReason: 'distributed_lock.resignation.reason',
  template: 'distributed_lock.template',
  errorType: 'error.type',
  method: 'code.function.name',
} as const;

/** Low-cardinality attributes, which depend only on the code. They never contain the key. */
export function attributesOf({ provider, mode, template, method }: LockEvent): Attributes {
  return {
    [ATTRIBUTE.provider]: provider,
    [ATTRIBUTE.mode]: mode,
    ...(template !== null && { [ATTRIBUTE.template]: template }),
    ...(method !== null && { [ATTRIBUTE.method]: method }),
  };
}

/**
 * The outcome of an acquire attempt. Distinguishes busy, unavailable, and canceled attempts, as the caller sees them.
 */
export function acquireOutcome({ error, cancelled }: AcquireTrace): Attributes {
  if (cancelled) return { [ATTRIBUTE.outcome]: 'cancelled', [ATTRIBUTE.errorType]: '_OTHER' };
  if (error === undefined) return { [ATTRIBUTE.outcome]: 'acquired' };
  if (!LockError.is(error)) return { [ATTRIBUTE.outcome]: 'failed', [ATTRIBUTE.errorType]: '_OTHER' };
  return {
    [ATTRIBUTE.outcome]: isBusy(error) ? 'busy' : (OUTCOMES[error.code] ?? 'failed'),
    [ATTRIBUTE.errorType]: error.code,
  };
}

/** The outcome of a hold. */
export function holdOutcome({ result, error }: HoldTrace): Attributes {
  if (error === undefined) return { [ATTRIBUTE.outcome]: result ?? 'pending' };
  return { [ATTRIBUTE.outcome]: 'lost', [ATTRIBUTE.lossReason]: error.reason, [ATTRIBUTE.errorType]: error.code };
}

/**
 * Why a caller waited. Names an instance only if there is a template, because the code limits how many templates exist.
 * Keys without one may begin with any number of different names.
 */
export function blockerOf({ blockedBy, instance, template }: ContentionTrace): Attributes {
  return {
    [ATTRIBUTE.blockedBy]: blockedBy,
    ...(template !== null && instance !== null && { [ATTRIBUTE.holderInstance]: instance }),
  };
}

const OUTCOMES: Partial<Record<string, string>> = {
  LOCK_UNAVAILABLE: 'unavailable',
  LOCK_CAPACITY: 'refused',
};
