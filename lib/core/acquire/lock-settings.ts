import { toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import type { LimitShare } from '../../api/lock-mode.js';
import type { LockDefaults, LockOptions, LossPolicy, ReEntry, ReleasePolicy } from '../../api/lock-options.js';
import { assertKeepable, MIN_LEASE } from '../hold/lease-limits.js';
import type { OptionNames } from '../toolkit/given-options.js';
import { meantBy } from '../toolkit/nearest.js';
import type { AcquireRequest, LockCapabilities } from '../../api/lock-provider.js';

const OPTIONS: OptionNames<LockOptions> = {
  provider: true,
  mode: true,
  limit: true,
  weight: true,
  wait: true,
  lease: true,
  renew: true,
  maxHold: true,
  minHold: true,
  reentrant: true,
  within: true,
  onLost: true,
  release: true,
  signal: true,
};

const DEFAULT_WAIT = 5_000;
const DEFAULT_LEASE = 30_000;

/** The wishes of a caller for a key: a request with equal terms serves it. */
export type Terms = Pick<AcquireRequest, 'mode' | 'limited' | 'lease' | 'renew' | 'minHold'>;

/** Options, checked and complete; all times in ms. */
export interface LockSettings extends Terms {
  readonly wait: number;
  readonly maxHold: number;
  readonly reentrant: ReEntry;
  readonly onLost: LossPolicy;
  readonly release: ReleasePolicy;
}

/**
 * Completes `options` for a provider, with what the caller left open taken from `defaults`.
 *
 * @throws LockConfigError when an option is not valid, or is not for this provider.
 */
export function resolveSettings(
  options: LockOptions,
  defaults: LockDefaults,
  provider: { readonly name: string; readonly capabilities: LockCapabilities },
): LockSettings {
  const { capabilities, name } = provider;
  refuseUnknownOptions(options, name);
  const limited = limitOf(options, provider);
  const mode = limited ? 'limited' : oneOf(options.mode ?? 'exclusive', MODES, 'mode');
  if (mode === 'shared' && !capabilities.shared) {
    throw new LockConfigError(
      `Lock provider "${name}" has no shared locks: remove mode: 'shared', or choose another provider.`,
      { provider: name },
    );
  }
  const renew = oneOf(options.renew ?? true, SWITCH, 'renew');
  const perLock = capabilities.lease === 'per-lock';
  // A mistake is named where it was made.
  const place = (option: keyof LockDefaults) =>
    options[option] === undefined && defaults[option] !== undefined ? `defaults.${option}` : option;
  if (!perLock && (options.lease !== undefined || !renew)) {
    throw new LockConfigError(
      `Locks of provider "${name}" live as long as its session, so "lease" and "renew" cannot be set for one lock: set the session's time on the provider.`,
      { provider: name },
    );
  }
  const release = oneOf(options.release ?? defaults.release ?? 'confirmed', RELEASE_POLICIES, place('release'));
  if (release === 'sent' && !capabilities.ordered) {
    throw new LockConfigError(
      `Lock provider "${name}" does not execute commands in the order in which they were sent, so the next call of this process could find its own lock: remove release: 'sent', or choose another provider.`,
      { provider: name },
    );
  }
  const maxHold = toMilliseconds(options.maxHold ?? defaults.maxHold ?? Infinity, place('maxHold'), {
    min: 1,
    infinite: true,
  });
  const minHold = toMilliseconds(options.minHold ?? 0, 'minHold');
  if (minHold > 0 && !capabilities.minHold) {
    throw new LockConfigError(
      `Lock provider "${name}" cannot keep a key after its release: remove "minHold" (atLeast), or choose another provider.`,
      { provider: name },
    );
  }
  if (minHold > maxHold) {
    throw new LockConfigError(`Option "minHold" is ${minHold} ms, longer than "maxHold", which is ${maxHold} ms.`, {
      provider: name,
    });
  }
  const builtIn = Math.min(DEFAULT_LEASE, capabilities.maxLease ?? Infinity);
  const lease = toMilliseconds(options.lease ?? (perLock ? defaults.lease : undefined) ?? builtIn, place('lease'), {
    min: MIN_LEASE,
  });
  assertKeepable(lease, 'lease', provider);
  assertKeepable(minHold, 'minHold', provider);
  return {
    mode,
    limited,
    wait: toMilliseconds(options.wait ?? defaults.wait ?? DEFAULT_WAIT, place('wait'), { infinite: true }),
    lease,
    renew,
    maxHold,
    minHold,
    reentrant: reEntryOf(options, defaults, name),
    onLost: oneOf(options.onLost ?? defaults.onLost ?? 'throw', LOSS_POLICIES, place('onLost')),
    release,
  };
}

/** @throws LockConfigError which names all options that do not exist */
function refuseUnknownOptions(options: LockOptions, provider: string): void {
  const known = Object.keys(OPTIONS);
  let isForeign = false;
  const sentences: string[] = [];
  for (const [option, value] of Object.entries(options)) {
    if (value === undefined || Object.hasOwn(OPTIONS, option)) continue;
    const meant = meantBy(option, known);
    isForeign ||= meant === undefined;
    const remedy = meant === undefined ? 'remove it' : `write "${meant}"`;
    sentences.push(`There is no option "${option}" for a lock of provider "${provider}": ${remedy}.`);
  }
  if (sentences.length === 0) return;
  if (isForeign) sentences.push(`The options of a lock are ${known.map((option) => `"${option}"`).join(', ')}.`);
  throw new LockConfigError(sentences.join(' '), { provider });
}

/** So many may hold a key together: an operator who looks at it, or a change of the limit, makes the backend read them all. */
const MOST_HOLDERS = 10_000;
const MODES = ['exclusive', 'shared'] as const;
const SWITCH: readonly boolean[] = [true, false];
const RE_ENTRIES: readonly ReEntry[] = [true, false, 'explicit'];
const LOSS_POLICIES: readonly LossPolicy[] = ['throw', 'throw-early', 'ignore'];
const RELEASE_POLICIES: readonly ReleasePolicy[] = ['confirmed', 'sent'];

/** @throws LockConfigError for what is no such option, and for a call that names a lock to enter and forbids it */
function reEntryOf({ reentrant, within }: LockOptions, defaults: LockDefaults, provider: string): ReEntry {
  if (within !== undefined && reentrant === false) {
    throw new LockConfigError(
      'Options "within" and reentrant: false exclude each other: "within" names a lock to enter again. Remove one of them.',
      { provider },
    );
  }
  return oneOf(
    reentrant ?? defaults.reentrant ?? 'explicit',
    RE_ENTRIES,
    reentrant === undefined && defaults.reentrant !== undefined ? 'defaults.reentrant' : 'reentrant',
  );
}

/** @throws LockConfigError where the provider has no limits, or for what no holder could ever take */
function limitOf(
  { limit, weight, mode }: LockOptions,
  { name, capabilities }: { readonly name: string; readonly capabilities: LockCapabilities },
): LimitShare | undefined {
  const refuse = (why: string): never => {
    throw new LockConfigError(why, { provider: name });
  };
  if (limit === undefined) {
    return weight === undefined ? undefined : refuse('Option "weight" is a part of "limit": set "limit" as well.');
  }
  if (!capabilities.limits) {
    refuse(`Lock provider "${name}" has no limits: remove "limit", or choose another provider.`);
  }
  if (mode !== undefined) refuse(`Options "limit" and "mode" exclude each other: remove one of them.`);
  if (!Number.isSafeInteger(limit) || limit < 1) {
    refuse(`Option "limit" is ${String(limit)}, but must be a whole number from 1${ofText(limit)}.`);
  }
  const taken = weight ?? 1;
  if (!Number.isSafeInteger(taken) || taken < 1 || taken > limit) {
    refuse(
      `Option "weight" is ${String(weight)}, but must be a whole number from 1 to "limit", which is ${limit}${ofText(weight)}.`,
    );
  }
  if (limit > taken * MOST_HOLDERS) {
    refuse(
      `Option "limit" is ${limit} with a "weight" of ${taken}, so more than ${MOST_HOLDERS} could hold the key: ` +
        `lower the limit, raise the weights, or spread the holders over several keys.`,
    );
  }
  return { limit, weight: taken };
}

// Settings often come from a configuration file or the environment, where the types did not look.
function oneOf<T extends string | boolean>(value: T, allowed: readonly T[], option: string): T {
  if (allowed.includes(value)) return value;
  const must = `must be ${allowed.map(shown).join(' or ')}`;
  const isSwitch = ['true', 'false'].includes(value as string) && allowed.some((each) => typeof each === 'boolean');
  throw new LockConfigError(
    isSwitch
      ? `Option "${option}" is the text ${shown(value)}, but ${must}: convert it, such as process.env.NAME === 'true'.`
      : `Option "${option}" is ${shown(value)}, but ${must}.`,
  );
}

/** The remedy for the text of an environment variable, which looks like a number in a message. */
function ofText(value: unknown): string {
  return typeof value === 'string' ? `. It is the text ${shown(value)}: convert it by Number()` : '';
}
