import type { ConfiguredDuration } from '../../api/duration.js';
import { namesOfMembers } from '../shared/members.js';
import { duration, type OptionTable, read, type Settings, text } from '../../core/toolkit/options.js';

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
   * locks for about as long. Each provider is probed every third of it, by acquiring and releasing a lock, and a preferred provider is used
   * again ten windows after a switch at the earliest. Default 6 s, at least 1 s and at most a day. The same in all processes.
   */
  readonly window?: ConfiguredDuration | undefined;
}

// The record is written three times a window; with a shorter window its round trips would take most of it.
const MIN_WINDOW = 1_000;
// Timers run for a little more than these, and overflow beyond 24.8 days: they would then fire immediately, again and again.
const DAY = 24 * 60 * 60 * 1_000;
const PROBES_PER_WINDOW = 3;
const WINDOWS_BEFORE_FAILBACK = 10;

const OPTIONS = {
  providers: namesOfMembers(),
  casStore: text('the name of the lock provider that stores the shared record, such as one of SQL or ZooKeeper')
    .written()
    .required(),
  window: duration({ min: MIN_WINDOW, max: DAY }).or('6s'),
} satisfies OptionTable<FailoverLockProviderOptions>;

/** The options, checked and complete; all times in ms. */
export interface FailoverSettings extends Settings<typeof OPTIONS> {
  /** How often each provider is probed. A probe may take half of it. */
  readonly probeInterval: number;
  /**
   * The shortest time after a switch before a preferred provider is used again. Doubled with each failback, up to an hour. A provider
   * that was down must also have answered for half of it without a failure.
   */
  readonly failbackDelay: number;
}

/** @throws LockConfigError for options that cannot work */
export function readOptions(options: FailoverLockProviderOptions): FailoverSettings {
  const example = "new FailoverLockProvider({ providers: ['redis', 'sql'], casStore: 'sql' })";
  const settings = read({ name: 'FailoverLockProvider', example }, options, OPTIONS);
  const { window } = settings;
  return { ...settings, probeInterval: window / PROBES_PER_WINDOW, failbackDelay: window * WINDOWS_BEFORE_FAILBACK };
}
