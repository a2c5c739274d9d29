import { type ConfiguredDuration, toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import { checkProviders } from '../../core/toolkit/members.js';
import { checkGiven, type OptionNames, refuseUnknown } from '../../core/toolkit/given-options.js';

export interface FailoverLockProviderOptions {
  /** The names of the providers to use, the preferred one first. At least two. The same in all processes. */
  readonly providers: readonly string[];
  /**
   * The name of the provider that stores the record which all processes share. It must keep what it has acknowledged: SQL on MySQL,
   * MariaDB or Postgres with a single writer, or ZooKeeper. While it cannot be reached there are no locks, so a fleet that must survive
   * the loss of any one provider stores the record on a third.
   */
  readonly casStore: string;
  /**
   * How long locks stay valid without an answer from the record. Each process writes the record every third of it, and a switch pauses
   * locks for about as long. Default 6 s, at least 1 s and at most a day. The same in all processes.
   */
  readonly window?: ConfiguredDuration | undefined;
  /**
   * How often each provider is probed by acquiring and releasing a lock. A probe may take half of it. Default 2 s, at least 20 ms and
   * at most a day.
   */
  readonly probeInterval?: ConfiguredDuration | undefined;
  /**
   * The shortest time after a switch before a preferred provider is used again. Doubled with each failback, up to an hour. A provider
   * that was down must also have answered for half of it without a failure. Default 1 min, at most 24.8 days.
   */
  readonly failbackDelay?: ConfiguredDuration | undefined;
}

export interface FailoverSettings {
  readonly providers: readonly string[];
  readonly casStore: string;
  /** All times in ms. */
  readonly window: number;
  readonly probeInterval: number;
  readonly failbackDelay: number;
}

// The record is written three times a window; with a shorter window its round trips would take most of it.
const MIN_WINDOW = 1_000;
const MIN_PROBE_INTERVAL = 20;
// Timers run for a little more than these, and overflow beyond 24.8 days: they would then fire immediately, again and again.
const DAY = 24 * 60 * 60 * 1_000;

const OPTIONS: OptionNames<FailoverLockProviderOptions> = {
  providers: true,
  casStore: true,
  window: true,
  probeInterval: true,
  failbackDelay: true,
};
const RENAMED: Readonly<Record<string, string>> = {
  engines: 'write "providers"',
  record: 'write "casStore"',
  probeEvery: 'write "probeInterval"',
  minStay: 'write "failbackDelay"',
};

/** The options, checked and complete. @throws LockConfigError */
export function readOptions(options: FailoverLockProviderOptions): FailoverSettings {
  checkGiven(
    'FailoverLockProvider',
    options,
    "new FailoverLockProvider({ providers: ['redis', 'sql'], casStore: 'sql' })",
  );
  const { providers, casStore } = options;
  for (const option of Object.keys(options)) {
    const renamed = RENAMED[option];
    if (renamed !== undefined) refuse(`there is no option "${option}": ${renamed}`);
  }
  refuseUnknown('FailoverLockProvider', options, OPTIONS);
  checkProviders(providers, refuse);
  if (typeof casStore !== 'string') {
    refuse(
      `"casStore" must be the name of the lock provider that stores the shared record, such as one of SQL or ZooKeeper, and is ${shown(casStore)}`,
    );
  }
  const { window = 6_000, probeInterval = 2_000, failbackDelay = 60_000 } = options;
  return {
    providers,
    casStore,
    window: toMilliseconds(window, 'window', { min: MIN_WINDOW, max: DAY }),
    probeInterval: toMilliseconds(probeInterval, 'probeInterval', { min: MIN_PROBE_INTERVAL, max: DAY }),
    failbackDelay: toMilliseconds(failbackDelay, 'failbackDelay'),
  };
}

function refuse(why: string): never {
  throw new LockConfigError(`FailoverLockProvider: ${why}.`);
}
