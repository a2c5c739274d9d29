import type { ConfiguredDuration } from '../../api/duration.js';
import { namesOfMembers } from '../shared/members.js';
import { duration, type OptionTable, read, type Settings, text } from '../../core/toolkit/options.js';

export interface FailoverLockProviderOptions {
  /** The names of the providers to use, in order of preference. At least two. All processes must use the same list. */
  readonly providers: readonly string[];
  /**
   * The name of the provider that stores the record shared by all processes. It must never lose an acknowledged write:
   * SQL on MySQL, MariaDB or Postgres with a single writer, or ZooKeeper. While it is unreachable, no locks can be
   * acquired. To survive the loss of any provider, store the record in a third.
   */
  readonly casStore: string;
  /**
   * How long locks stay valid without a response from the record's provider, in ms. Each process writes to the record
   * every third of this time, and a switch pauses locks for about as long. Each provider is also probed every third of
   * this time, by acquiring and releasing a lock. A preferred provider isn't used again until at least ten windows
   * after the switch. Default 6 s, at least 1 s and at most a day. All processes must use the same value.
   */
  readonly window?: ConfiguredDuration | undefined;
}

// The record is written three times per window. Round trips would take up most of a shorter window.
const MIN_WINDOW = 1_000;
// Some timers run a little longer than the window, and beyond 24.8 days they would overflow and fire immediately and
// repeatedly.
const DAY = 24 * 60 * 60 * 1_000;
const PROBES_PER_WINDOW = 3;
const WINDOWS_BEFORE_FAILBACK = 10;

const OPTIONS = {
  providers: namesOfMembers(),
  casStore: text('the name of the lock provider that stores the shared record, such as a SQL or ZooKeeper provider')
    .written()
    .required(),
  window: duration({ min: MIN_WINDOW, max: DAY }).or('6s'),
} satisfies OptionTable<FailoverLockProviderOptions>;

/** The validated options. */
export interface FailoverSettings extends Settings<typeof OPTIONS> {
  /** How often each provider is probed. A probe times out after half this time. */
  readonly probeInterval: number;
  /**
   * The minimum time after a switch before a preferred provider is used again. Doubles with each failback, up to an
   * hour. A provider that was down must also have worked without a failure for half this time.
   */
  readonly failbackDelay: number;
}

/** @throws LockConfigError for invalid options */
export function readOptions(options: FailoverLockProviderOptions): FailoverSettings {
  const example = "new FailoverLockProvider({ providers: ['redis', 'sql'], casStore: 'sql' })";
  const settings = read({ name: 'FailoverLockProvider', example }, options, OPTIONS);
  const { window } = settings;
  return { ...settings, probeInterval: window / PROBES_PER_WINDOW, failbackDelay: window * WINDOWS_BEFORE_FAILBACK };
}
