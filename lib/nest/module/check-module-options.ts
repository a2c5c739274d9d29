import { LockConfigError } from '../../api/errors.js';
import type { LockProvider } from '../../api/lock-provider.js';
import { shown } from '../../api/printable.js';
import {
  anything,
  count,
  group,
  option,
  type OptionTable,
  type Owner,
  read,
  refuse,
} from '../../core/toolkit/options.js';
import type { DistributedLockModuleOptions } from '../options/module-options.js';

const REDIS_CALL = 'new RedisLockProvider({ url })';
/** The call to suggest for a word: a server's or client's name, or an address. */
const CALLS: readonly (readonly [word: RegExp, call: string])[] = [
  [/^(?:postgres|pg|mysql|mariadb|sql)/, 'new SqlVersionLockProvider({ url })'],
  [/^(?:typeorm|dataSource)/, 'new TypeOrmVersionLockProvider({ dataSource })'],
  [/^(?:zookeeper|zk)/, 'new ZooKeeperLockProvider({ connectString })'],
  [/^memcache/, 'new MemcachedLockProvider({ server })'],
  [/^memory/, 'new MemoryLockProvider()'],
  [/^client/, 'new RedisLockProvider({ client })'],
  [/^(?:redis|ioredis|url|host)/, REDIS_CALL],
];
const MAPPED = group('false, or { http: { busy: 409 } } to change the busy status from 423', {
  http: group('error statuses, such as { busy: 409 }', {
    busy: count(400, 'a number from 400 to 599 (an error status)', 599),
  }),
});

/** The LockManager checks the options that use `anything()`. */
const OPTIONS = {
  provider: anything<LockProvider>().written(),
  providers: option<object>(
    'the lock providers by name: { redis: new RedisLockProvider({ url }) }. For one, use "provider"',
    (given) => (isRecord(given) ? given : undefined),
  ).written(),
  default: anything().written(),
  namespace: anything().written(),
  instance: anything(),
  defaults: anything(),
  shutdownGrace: anything(),
  failFast: anything(),
  context: option('an object of named functions', contextOf),
  config: anything(),
  mapErrors: option<false | object>(MAPPED.wanted, (given, owner, name) =>
    given === false ? given : MAPPED.read(given, owner, name),
  ),
} satisfies OptionTable<DistributedLockModuleOptions>;

/** @throws LockConfigError for options that the types reject */
export function assertUsable(options: unknown): asserts options is DistributedLockModuleOptions {
  if (typeof options !== 'object' || options === null) {
    throw new LockConfigError(
      'The options of DistributedLockModule must be an object: return one from the forRootAsync() factory.',
    );
  }
  assertNoProvider(options);
  const { url } = options as { url?: unknown };
  const foreign = (name: string) => {
    const call = name === 'url' ? callFor(url) : knownCallFor(name);
    return call && `provider: ${call}`;
  };
  const owner = { name: 'DistributedLockModule', example: 'DistributedLockModule.forRoot({ provider })', foreign };
  const { provider, providers } = read(owner, options, OPTIONS);
  const named = Object.entries(providers ?? {}).map(([name, each]) => whyNoProvider(`providers.${name}`, each));
  const wrong = [...named, provider === undefined ? [] : whyNoProvider('provider', provider)].flatMap(
    (why) => why ?? [],
  );
  if (wrong.length > 0) throw new LockConfigError(wrong);
}

function contextOf(context: unknown, owner: Owner, option: string): object | undefined {
  if (!isRecord(context)) return undefined;
  for (const [name, value] of Object.entries(context)) {
    if (typeof value === 'function') continue;
    refuse(
      owner,
      `${option}.${name}`,
      `is ${shown(value)}, but must be a function that returns the value for a call: write ${name}: () => ….`,
    );
  }
  return context;
}

/**
 * Rejects a provider or a client passed as the options: Nest copies the options of `forRoot()`, and the copy would be
 * empty.
 *
 * @throws LockConfigError
 */
export function assertNoProvider(options: object): void {
  const call = callForClient(options);
  if (whyNoProvider('', options) !== undefined && call === undefined) return;
  throw new LockConfigError(
    `The options of DistributedLockModule cannot be a ${call ? 'client' : 'lock provider'}: pass { provider: ${call ?? `new ${nameOfClass(options)}(…)`} }, also from the forRootAsync() factory.`,
  );
}

function isRecord(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function nameOfClass(value: object): string {
  return (value.constructor as { readonly name?: string } | undefined)?.name || 'RedisLockProvider';
}

/** The error message for an option that is not a lock provider. */
function whyNoProvider(option: string, provider: unknown): string | undefined {
  if (typeof (provider as Partial<LockProvider> | undefined)?.createBackend === 'function') return undefined;
  if (typeof provider === 'function') {
    return `Option "${option}" is the class ${provider.name}, but must be an instance: write new ${provider.name}(…).`;
  }
  // A string may be an address with a password, so it is not shown.
  const call = callForClient(provider);
  const given = call ? 'a client' : typeof provider === 'string' ? 'a text' : shown(provider);
  return `Option "${option}" is ${given}, but must be a lock provider: write ${call ?? callFor(provider)}.`;
}

function callFor(word: unknown): string {
  return knownCallFor(String(word)) ?? REDIS_CALL;
}

function knownCallFor(word: string): string | undefined {
  return CALLS.find(([pattern]) => pattern.test(word))?.[1];
}

/** The call to suggest for a client. `undefined` for any other value. */
function callForClient(client: unknown): string | undefined {
  const { duplicate, createQueryRunner } = Object(client) as Partial<Record<string, unknown>>;
  if (typeof duplicate === 'function') return callFor('client');
  return typeof createQueryRunner === 'function' ? callFor('dataSource') : undefined;
}
