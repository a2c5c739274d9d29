import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { safeText } from '../api/cause.js';
import type { LockBackend, LockProvider } from '../api/lock-provider.js';
import type { LockLogger } from '../api/logger.js';
import { shown } from '../api/printable.js';
import { resolveManagerOptions } from '../core/lock-manager-options.js';
import { systemClock } from '../core/toolkit/clock.js';
import { instanceIdOf } from '../core/toolkit/instance-ids.js';
import { systemRandom, withPrefix } from '../core/toolkit/random.js';
import { RedisLockProvider } from '../providers/redis/index.js';
import { SqlVersionLockProvider } from '../providers/sql/index.js';
import { ZooKeeperLockProvider } from '../providers/zookeeper/index.js';
import { Misuse } from './exit-code.js';
import type { Source } from './source.js';

/** The locks of one namespace on a server, not connected. */
export interface Namespace {
  readonly name: string;
  /** The class of the provider, for people. */
  readonly provider: string;
  readonly backend: LockBackend;
}

/**
 * Makes the backend of an observer: it is no instance of an application, so it is not registered and acquires nothing.
 *
 * @throws Misuse, and LockConfigError for options that cannot work
 */
export async function openBackend(
  source: Source,
  namespace: string | undefined,
  logger: LockLogger,
): Promise<Namespace> {
  const { provider, namespace: own } = source.kind === 'config' ? await fromFile(source.file) : ofServer(source);
  if (provider.members) {
    throw new Misuse(
      `${provider.constructor.name} is built on the providers ${provider.members.join(', ')}, and would take part in their decisions. Export one of them instead.`,
    );
  }
  const name = source.kind === 'config' ? 'default' : source.kind;
  const options = { providers: { [name]: provider }, namespace: namespace ?? own };
  const manager = resolveManagerOptions(options);
  const random = systemRandom();
  const id = instanceIdOf(random.id());
  const backend = provider.createBackend({
    name,
    namespace: manager.namespace,
    instance: { id, name: manager.instance },
    isObserver: true,
    clock: systemClock,
    random: withPrefix(random, id),
    logger,
    emit() {
      // Each command gets the failure of its own question.
    },
    member(member) {
      throw new Misuse(`There is no provider "${member}".`);
    },
  });
  return { name: manager.namespace, provider: provider.constructor.name, backend };
}

function ofServer({ kind, url, table }: Exclude<Source, { kind: 'config' }>): Configuration {
  switch (kind) {
    case 'redis':
      return { provider: new RedisLockProvider({ url }) };
    case 'zookeeper':
      return { provider: new ZooKeeperLockProvider({ connectString: url.replace(/^zookeeper:\/\//i, '') }) };
    case 'postgres':
    case 'mysql':
      return { provider: new SqlVersionLockProvider({ url, ...(table !== undefined && { table }) }) };
  }
}

/** The exports of a file of the configuration. */
interface Configuration {
  readonly provider: LockProvider;
  readonly namespace?: string | undefined;
}

async function fromFile(file: string): Promise<Configuration> {
  let exported: Readonly<Record<string, unknown>>;
  try {
    exported = (await import(pathToFileURL(resolve(file)).href)) as typeof exported;
  } catch (error) {
    throw new Misuse(`The file of --config cannot be loaded: ${safeText(String(error))}`, { cause: error });
  }
  const { default: provider, namespace } = exported;
  if (typeof provider !== 'object' || provider === null || !('createBackend' in provider)) {
    throw new Misuse(
      `The default export of ${file} is ${shown(provider)}, but must be a lock provider: export default new RedisLockProvider({ … }).`,
    );
  }
  if (namespace !== undefined && typeof namespace !== 'string') {
    throw new Misuse(`The export "namespace" of ${file} is ${shown(namespace)}, but must be a string.`);
  }
  return { provider: provider as LockProvider, namespace };
}
