import { type Duration, toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { isListOfNames } from '../../core/toolkit/list-of-names.js';
import type { HealthTerms } from './engine-health.js';
import type { StrictTerms } from './strict-selector.js';

export interface FailoverProviderOptions {
  /** The names of the providers to use, the preferred one first. At least two. */
  readonly engines: readonly string[];
  /**
   * - `strict` (default): mutual exclusion holds through every switch, at the price of a pause of about `window`.
   * - `available`: each process switches by itself and at once; around a switch two may hold the same lock.
   */
  readonly mode?: 'strict' | 'available';
  /**
   * The name of the provider that keeps the record on which processes agree; needed for `strict`. It must keep what it
   * has acknowledged: SQL on MySQL, MariaDB or Postgres, with a single writer, or ZooKeeper. While it cannot be reached there are no locks, so a fleet
   * that is to survive the loss of any one engine keeps the record on a third.
   */
  readonly record?: string;
  /**
   * For how long a process believes its locks without an answer from the record, in ms. A switch takes about as long.
   * Default 5 s, at least 1 s and at most a day. The same in all processes.
   */
  readonly window?: Duration;
  /** How long an engine keeps the lock of a process that died, where leases are per lock. Default 30 s. */
  readonly lease?: Duration;
  /** After how many failures in a row an engine counts as down. Default 3. */
  readonly failures?: number;
  /** How often each engine is probed by taking and giving back a lock. Default 2 s, at most a day. */
  readonly probeEvery?: Duration;
  /** How long a probe may take. Default 1 s. */
  readonly probeTimeout?: Duration;
  /** For how long an engine that was down must answer without a failure to be preferred again. Default 30 s. */
  readonly stableFor?: Duration;
  /** How long the preferred engine stays away at least; doubled with each return, up to an hour. Default 1 min. */
  readonly minStay?: Duration;
}

export interface FailoverSettings extends HealthTerms, StrictTerms {
  readonly engines: readonly string[];
  readonly mode: 'strict' | 'available';
  /** Given where the mode is `strict`. */
  readonly record: string | undefined;
  readonly lease: number;
}

// The record is written five times a window; below this its round trips would eat the window up.
const MIN_WINDOW = 1_000;
const MIN_LEASE = 1_000;
// Timers run for a little more than these, and overflow beyond 24.8 days: they would then fire at once, again and again.
const DAY = 24 * 60 * 60 * 1_000;

/** The options, checked and complete. @throws LockConfigError */
export function readOptions(options: FailoverProviderOptions): FailoverSettings {
  const { engines, mode = 'strict', record, failures = 3 } = options;
  if (!isListOfNames(engines))
    refuse(`"engines" must be a list of names of lock providers, such as ['redis', 'mysql']`);
  if (engines.length < 2 || new Set(engines).size < engines.length) {
    refuse(`"engines" names ${engines.join(', ') || 'none'}, but must name at least two lock providers, each once`);
  }
  if (!['strict', 'available'].includes(mode)) refuse(`"mode" is '${mode}', but must be 'strict' or 'available'`);
  if (record !== undefined && typeof record !== 'string') refuse(`"record" must be the name of a lock provider`);
  if (mode === 'strict' && record === undefined) {
    refuse(
      `mode 'strict' needs a "record": name the lock provider on which processes agree, such as one of SQL or ZooKeeper`,
    );
  }
  if (mode === 'available' && record !== undefined) refuse(`"record" means nothing in mode 'available': remove it`);
  if (!Number.isInteger(failures) || failures < 1)
    refuse(`"failures" is ${failures}, but must be a whole number from 1 on`);
  return {
    engines,
    mode,
    record,
    failures,
    window: toMilliseconds(options.window ?? 5_000, 'window', { min: MIN_WINDOW, max: DAY }),
    lease: toMilliseconds(options.lease ?? 30_000, 'lease', { min: MIN_LEASE }),
    probeEvery: toMilliseconds(options.probeEvery ?? 2_000, 'probeEvery', { min: 10, max: DAY }),
    probeTimeout: toMilliseconds(options.probeTimeout ?? 1_000, 'probeTimeout', { min: 10 }),
    stableFor: toMilliseconds(options.stableFor ?? 30_000, 'stableFor'),
    minStay: toMilliseconds(options.minStay ?? 60_000, 'minStay'),
  };
}

function refuse(why: string): never {
  throw new LockConfigError(`FailoverProvider: ${why}.`);
}
