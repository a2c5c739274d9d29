import { LockConfigError } from '../../api/errors.js';
import type { LimitShare } from '../../api/lock-mode.js';
import type { Lock } from '../../api/lock.js';
import type { LockDefaults, LockOptions, LossPolicy, ReleasePolicy } from '../../api/lock-options.js';
import { assertKeepable, MIN_LEASE } from '../hold/lease-limits.js';
import {
  anything,
  assertObject,
  count,
  duration,
  oneOf,
  option,
  type OptionTable,
  readGiven,
  refuse,
  type Settings,
  text,
} from '../toolkit/options.js';
import type { AcquireRequest, LockCapabilities } from '../../api/lock-provider.js';

/** The options that a module can set for all its locks. */
export const DEFAULTS = {
  wait: duration({ infinite: true }),
  lease: duration({ min: MIN_LEASE }),
  maxHold: duration({ min: 1, infinite: true }),
  reentrant: oneOf(true, 'explicit'),
  onLost: oneOf('throw', 'ignore'),
  release: oneOf('confirmed', 'sent'),
} satisfies OptionTable<LockDefaults>;
const { wait, lease, maxHold, onLost, release } = DEFAULTS;

export const OF_LOCK = {
  provider: text('the name of a lock provider'),
  mode: oneOf('exclusive', 'shared'),
  limit: count(1),
  weight: count(1),
  ...{ wait, lease, maxHold, onLost, release },
  minHold: duration(),
  within: anything<Lock>(),
  signal: option(
    'an AbortSignal, such as AbortSignal.timeout(1_000), or the "signal" of an AbortController',
    (given) => {
      // Checks the methods rather than the class, because Node's class isn't the only implementation.
      const { throwIfAborted, addEventListener } = Object(given) as Partial<Record<string, unknown>>;
      const isSignal = typeof throwIfAborted === 'function' && typeof addEventListener === 'function';
      return isSignal ? (given as AbortSignal) : undefined;
    },
  ),
} satisfies OptionTable<LockOptions>;

const DEFAULT_WAIT = 5_000;
const DEFAULT_LEASE = 30_000;

/** A request's grant can serve a waiter only if these settings match. */
export type Terms = Pick<AcquireRequest, 'mode' | 'limited' | 'lease' | 'minHold'>;

/** A lock's options, checked and complete. All times are in ms. */
export interface LockSettings extends Terms {
  readonly wait: number;
  readonly maxHold: number;
  readonly reentrant: true | 'explicit';
  readonly onLost: LossPolicy;
  readonly release: ReleasePolicy;
}

/** @throws LockConfigError if the options are not an object, such as a bare duration */
export function assertLockOptions(options: unknown): void {
  assertObject({ example: "{ wait: '5s' }" }, options);
}

/**
 * Checks `options` against a provider and fills in `defaults`.
 *
 * @param reentrant set only for a decorated method. Individual calls pass their outer lock as `within` instead
 * @throws LockConfigError if an option is invalid or not supported by this provider
 */
export function resolveSettings(
  options: LockOptions,
  defaults: Partial<Settings<typeof DEFAULTS>>,
  provider: { readonly name: string; readonly capabilities: LockCapabilities },
  reentrant?: LockDefaults['reentrant'],
): LockSettings {
  const { capabilities, name } = provider;
  const owner = { provider: name };
  const given = readGiven(owner, options, OF_LOCK);
  const fail = (why: string): never => {
    throw new LockConfigError(why, { provider: name });
  };
  const limited = limitOf(given, capabilities, owner, fail);
  const mode = limited ? 'limited' : (given.mode ?? 'exclusive');
  if (mode === 'shared' && !capabilities.shared) {
    fail(`Lock provider "${name}" does not support mode: 'shared'. Remove it, or choose another provider.`);
  }
  const perLock = capabilities.lease === 'per-lock';
  if (!perLock && given.lease !== undefined) {
    fail(
      `Locks of provider "${name}" live as long as its session, so "lease" cannot be set per lock: set the session timeout on the provider.`,
    );
  }
  const release = given.release ?? defaults.release ?? 'confirmed';
  if (release === 'sent' && !capabilities.ordered) {
    fail(
      `Lock provider "${name}" does not execute commands in the order they were sent, so this process could find its own lock still held on its next call: remove release: 'sent', or choose another provider.`,
    );
  }
  const { minHold = 0, maxHold = defaults.maxHold ?? Infinity } = given;
  if (minHold > 0 && !capabilities.minHold) {
    fail(
      `Lock provider "${name}" cannot keep a key locked after its release: remove "minHold", or choose another provider.`,
    );
  }
  if (minHold > maxHold) {
    refuse(
      owner,
      'minHold',
      `is ${minHold} ms, which exceeds "maxHold" (${maxHold} ms): lower "minHold", or raise "maxHold".`,
    );
  }
  const builtIn = Math.min(DEFAULT_LEASE, capabilities.maxLease ?? Infinity);
  const lease = given.lease ?? (perLock ? defaults.lease : undefined) ?? builtIn;
  assertKeepable(lease, 'lease', provider);
  assertKeepable(minHold, 'minHold', provider);
  return {
    mode,
    limited,
    wait: given.wait ?? defaults.wait ?? DEFAULT_WAIT,
    lease,
    maxHold,
    minHold,
    reentrant: DEFAULTS.reentrant.read(reentrant, owner, 'reentrant') ?? defaults.reentrant ?? 'explicit',
    onLost: given.onLost ?? defaults.onLost ?? 'throw',
    release,
  };
}

/** The most holders that a limit can allow. Inspecting a key or changing its limit makes the backend read them all. */
const MAX_HOLDERS = 10_000;

/** @throws LockConfigError if the provider doesn't support limits, or if no holder could ever get this share */
function limitOf(
  { limit, weight, mode }: Partial<Settings<typeof OF_LOCK>>,
  capabilities: LockCapabilities,
  owner: { readonly provider: string },
  fail: (why: string) => never,
): LimitShare | undefined {
  if (limit === undefined) {
    return weight === undefined ? undefined : fail('Option "weight" needs "limit": set "limit" as well.');
  }
  if (!capabilities.limits) {
    fail(`Lock provider "${owner.provider}" cannot enforce "limit": remove it, or choose another provider.`);
  }
  if (mode !== undefined) fail(`Options "limit" and "mode" are mutually exclusive: remove one.`);
  const taken = weight ?? 1;
  if (taken > limit) {
    refuse(owner, 'weight', `is ${taken}, but it must be a whole number from 1 to "limit" (${limit}).`);
  }
  if (limit > taken * MAX_HOLDERS) {
    refuse(
      owner,
      'limit',
      `is ${limit} with a "weight" of ${taken}, so more than ${MAX_HOLDERS} callers could hold the key: ` +
        `lower the limit, raise the weights, or use several keys.`,
    );
  }
  return { limit, weight: taken };
}
