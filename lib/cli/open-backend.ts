import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { errorText } from '../api/cause.js';
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
import { UsageError } from './exit-code.js';
import type { Source } from './source.js';

/** A namespace of locks on a server. The backend isn't connected yet. */
export interface Namespace {
  readonly name: string;
  /** The provider's class name, for messages. */
  readonly provider: string;
  readonly backend: LockBackend;
}

/**
 * Creates a backend for an observer; it isn't registered as an instance and doesn't acquire locks.
 *
 * @throws UsageError
 * @throws LockConfigError for invalid options
 */
export async function openBackend(
  source: Source,
  namespace: string | undefined,
  logger: LockLogger,
): Promise<Namespace> {
  const { provider, namespace: own } =
    source.kind === 'config' ? await fromFile(source.file) : { provider: ofServer(source) };
  if (provider.members) {
    throw new UsageError(
      `${provider.constructor.name} combines the providers ${provider.members.join(', ')}, so this command would affect its decisions. Export one of these providers instead.`,
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
      // Nothing to do: a command sees failures in its own calls.
    },
    member(member) {
      throw new UsageError(`There is no provider "${member}".`);
    },
  });
  return { name: manager.namespace, provider: provider.constructor.name, backend };
}

function ofServer({ kind, url, table }: Exclude<Source, { kind: 'config' }>): LockProvider {
  if (kind === 'redis') return new RedisLockProvider({ url });
  if (kind === 'zookeeper') return new ZooKeeperLockProvider({ connectString: url.replace(/^zookeeper:\/\//i, '') });
  return new SqlVersionLockProvider({ url, ...(table !== undefined && { table }) });
}

/** A config file's exports. */
interface Configuration {
  readonly provider: LockProvider;
  readonly namespace?: string | undefined;
}

async function fromFile(file: string): Promise<Configuration> {
  let exported: Readonly<Record<string, unknown>>;
  try {
    exported = (await import(pathToFileURL(resolve(file)).href)) as typeof exported;
  } catch (error) {
    throw new UsageError(`Could not load the --config file: ${errorText(error)}`, { cause: error });
  }
  const { default: provider, namespace } = exported;
  if (typeof provider !== 'object' || provider === null || !('createBackend' in provider)) {
    throw new UsageError(
      `The default export of ${file} is ${shown(provider)}, but must be a lock provider: export default new RedisLockProvider({ … }).`,
    );
  }
  if (namespace !== undefined && typeof namespace !== 'string') {
    throw new UsageError(`The export "namespace" of ${file} is ${shown(namespace)}, but must be a string.`);
  }
  return { provider: provider as LockProvider, namespace };
}
