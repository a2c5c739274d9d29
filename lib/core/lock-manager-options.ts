import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { LockConfigError } from '../api/errors.js';
import { toMilliseconds, type ConfiguredDuration } from '../api/duration.js';
import { isInstanceName, shown } from '../api/printable.js';
import type { LockDefaults } from '../api/lock-options.js';
import type { Clock } from '../api/clock.js';
import type { LockProvider } from '../api/lock-provider.js';
import type { LockLogger } from '../api/logger.js';
import type { Random } from '../api/random.js';
import { unknownIn } from './toolkit/given-options.js';

/** How to set up a {@link LockManager}. */
export interface LockManagerOptions {
  /** The providers by name. */
  readonly providers: Readonly<Record<string, LockProvider>>;
  /** The provider of calls that name none. Default: the only one. */
  readonly default?: string | undefined;
  /** Prefix of every key in every backend: `[A-Za-z0-9_.-]`, 1 to 64 characters. Default `lock`. */
  readonly namespace?: string | undefined;
  /** How operators recognize this application in {@link LockAdmin.list}: 1 to 100 printable characters of ASCII. Default: the host's name, escaped as in a URL where it is not ASCII, and the process id. */
  readonly instance?: string | undefined;
  /** Defaults for calls that leave an option open. */
  readonly defaults?: LockDefaults | undefined;
  /** How long {@link LockManager.stop} lets holders finish, in ms, at most 24.8 days. Default 7 s: Docker kills after 10 s. */
  readonly shutdownGrace?: ConfiguredDuration | undefined;
  /** Whether a backend that cannot be reached fails the start. Default true; false starts anyway, and its locks are unavailable until it is back. */
  readonly failFast?: boolean | undefined;
  /** Where the core reports what needs attention. Default: nowhere. */
  readonly logger?: LockLogger | undefined;
  /** For tests: all times come from it. Default: that of the system. */
  readonly clock?: Clock | undefined;
  /** For tests: all ids and pauses come from it. Default: that of the system. */
  readonly random?: Random | undefined;
}

const NAMESPACE = /^[A-Za-z0-9_.-]{1,64}$/;
// Leaves room for a process id.
const LONGEST_HOST = 80;
const PROVIDER_NAME = /^[A-Za-z0-9_-]{1,64}$/;
// Docker and Compose kill 10 s after SIGTERM, and the last releases may take 2 s of these.
const DEFAULT_GRACE = 7_000;

/** The options of a `LockManager`, checked and complete. @throws LockConfigError */
export function resolveManagerOptions(options: LockManagerOptions) {
  const { providers, namespace = 'lock', instance = thisProcess() } = options;
  const { failFast = true } = options;
  if (typeof (providers as unknown) !== 'object' || (providers as unknown) === null) {
    throw new LockConfigError(
      `LockManager needs "providers", its lock providers by name.${unknownIn(options, { providers: true })} Write new LockManager({ providers: { memory: new MemoryLockProvider() } }).`,
    );
  }
  if (!NAMESPACE.test(namespace)) {
    throw new LockConfigError(
      `Option "namespace" is '${namespace.slice(0, 80)}', but must be 1 to 64 of the characters A-Z a-z 0-9 _ . -`,
    );
  }
  if (!isInstanceName(instance)) {
    throw new LockConfigError(
      `Option "instance" is ${shown(instance)}, but must be 1 to 100 printable characters of ASCII.`,
    );
  }
  // The text 'false' of an environment variable would count as true.
  if (typeof failFast !== 'boolean') {
    throw new LockConfigError(`Option "failFast" is ${shown(failFast)}, but must be true or false.`);
  }
  return {
    defaultProvider: defaultProvider(Object.keys(providers), options.default),
    namespace,
    instance,
    shutdownGrace: toMilliseconds(options.shutdownGrace ?? DEFAULT_GRACE, 'shutdownGrace'),
    failFast,
  };
}

/** Valid for any host: Windows allows letters of any language in its name, and Linux any bytes. */
function thisProcess(): string {
  const host = Array.from(Buffer.from(hostname()), percentEncoded).join('');
  return `${shortened(host) || 'host'}:${process.pid}`;
}

/** As in a URL, so that people can read the name again. */
function percentEncoded(byte: number): string {
  const hex = byte.toString(16).toUpperCase().padStart(2, '0');
  return byte >= 0x20 && byte <= 0x7e ? String.fromCharCode(byte) : `%${hex}`;
}

/** Hosts that begin alike still differ: in containers, process ids are equal. */
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
        `A lock provider cannot be named "${name.slice(0, 80)}": use letters, digits, _ and -.`,
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
      `There are several lock providers (${known}): set "default" to the one that calls use which name none.`,
    );
  return only;
}
