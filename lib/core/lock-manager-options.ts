import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { LockConfigError } from '../api/errors.js';
import type { ConfiguredDuration } from '../api/duration.js';
import { isInstanceName } from '../api/printable.js';
import type { LockDefaults } from '../api/lock-options.js';
import type { Clock } from '../api/clock.js';
import type { LockProvider } from '../api/lock-provider.js';
import type { LockLogger } from '../api/logger.js';
import type { Random } from '../api/random.js';
import { DEFAULTS } from './plan/lock-settings.js';
import { anything, duration, flag, group, option, type OptionTable, read, text } from './toolkit/options.js';

/** How to set up a {@link LockManager}. */
export interface LockManagerOptions {
  /** The providers by name. */
  readonly providers: Readonly<Record<string, LockProvider>>;
  /** The provider for calls that don't specify one. Default: the only provider. */
  readonly default?: string | undefined;
  /** The prefix of every key in every backend: 1 to 64 characters of `[A-Za-z0-9_.-]`. Default `lock`. */
  readonly namespace?: string | undefined;
  /**
   * The name by which operators recognize this application, for example in {@link LockAdmin.list}: 1 to 100 printable
   * ASCII characters. Default: the host name, percent-encoded if it is not ASCII, and the process id.
   */
  readonly instance?: string | undefined;
  /** Defaults for options that a call leaves out. */
  readonly defaults?: LockDefaults | undefined;
  /**
   * How long {@link LockManager.stop} waits for holders to finish, in ms, at most 24.8 days. Default 7 s: Docker kills
   * a container after 10 s.
   */
  readonly shutdownGrace?: ConfiguredDuration | undefined;
  /**
   * Whether startup fails if a backend cannot be reached. Default true. If false, the application starts anyway, and
   * that backend's locks are unavailable until it recovers.
   */
  readonly failFast?: boolean | undefined;
  /** Receives warnings and errors that need attention. Default: no logging. */
  readonly logger?: LockLogger | undefined;
  /** Replaces the system clock, for tests. */
  readonly clock?: Clock | undefined;
  /** Replaces the system's randomness, the source of ids and jitter, for tests. */
  readonly random?: Random | undefined;
}

// Leaves room for the process id.
const LONGEST_HOST = 80;
const PROVIDER_NAME = /^[A-Za-z0-9_-]{1,64}$/;

const OPTIONS = {
  providers: option<LockManagerOptions['providers']>('the lock providers by name', (given) =>
    typeof given === 'object' && given !== null ? (given as LockManagerOptions['providers']) : undefined,
  ).required(),
  default: text('the name of a lock provider'),
  namespace: text('1 to 64 of the characters A-Z a-z 0-9 _ . -', /^[A-Za-z0-9_.-]{1,64}$/).or('lock'),
  instance: option('1 to 100 printable ASCII characters', (given) => (isInstanceName(given) ? given : undefined)),
  defaults: group("the options for all locks, such as { wait: '5s' }", DEFAULTS),
  // Docker and Compose kill a process 10 s after SIGTERM, and the last releases may take 2 s.
  shutdownGrace: duration().or('7s'),
  failFast: flag().or(true),
  logger: anything<LockLogger>(),
  clock: anything<Clock>(),
  random: anything<Random>(),
} satisfies OptionTable<LockManagerOptions>;

/** Checks a `LockManager`'s options and fills in defaults. @throws LockConfigError */
export function resolveManagerOptions(options: LockManagerOptions) {
  // Omits the name `LockManager`, because users usually pass these options to DistributedLockModule.
  const owner = { example: 'new LockManager({ providers: { memory: new MemoryLockProvider() } })' };
  const settings = read(owner, options, OPTIONS);
  const { providers, instance = thisProcess() } = settings;
  return { ...settings, instance, default: defaultProvider(Object.keys(providers), settings.default) };
}

/**
 * An instance name valid on any host: Windows allows letters from any language in host names, and Linux allows any
 * bytes.
 */
function thisProcess(): string {
  const host = Array.from(Buffer.from(hostname()), percentEncoded).join('');
  return `${shortened(host) || 'host'}:${process.pid}`;
}

/** URL-encodes a byte so the name can be decoded. */
function percentEncoded(byte: number): string {
  const hex = byte.toString(16).toUpperCase().padStart(2, '0');
  return byte >= 0x20 && byte <= 0x7e ? String.fromCharCode(byte) : `%${hex}`;
}

/**
 * Shortens a host name. A hash distinguishes names that start alike. Process ids can't, because they are often
 * identical in containers.
 */
function shortened(host: string): string {
  if (host.length <= LONGEST_HOST) return host;
  const hash = createHash('sha256').update(host).digest('hex').slice(0, 8);
  return `${host.slice(0, LONGEST_HOST - hash.length - 1)}~${hash}`;
}

function defaultProvider(names: readonly string[], chosen: string | undefined): string {
  const known = names.map((name) => `"${name}"`).join(', ');
  for (const name of names) {
    if (!PROVIDER_NAME.test(name))
      throw new LockConfigError(
        `A lock provider cannot be named "${name.slice(0, 80)}": use letters, digits, _, and -.`,
      );
  }
  if (chosen !== undefined) {
    if (names.includes(chosen)) return chosen;
    throw new LockConfigError(`Option "default" is "${chosen}", but the lock providers are ${known || 'none'}.`);
  }
  const [only, second] = names;
  if (only === undefined) throw new LockConfigError('There is no lock provider: name at least one in "providers".');
  if (second !== undefined)
    throw new LockConfigError(
      `There are several lock providers (${known}): set "default" to the one to use unless a call names another.`,
    );
  return only;
}
