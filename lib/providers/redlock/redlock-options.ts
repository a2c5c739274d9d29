import { type ConfiguredDuration, toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import { checkGiven, type OptionNames, refuseUnknown, unknownIn } from '../../core/toolkit/given-options.js';
import { isCluster, readOptions, type RedisServerOptions, type RedisSettings } from '../redis/client/redis-options.js';

/** The address of one node: exactly one of `client`, `url` and `options`, as for a single server. */
export type RedlockNodeOptions = RedisServerOptions;

export interface RedlockLockProviderOptions {
  /**
   * At least three independent Redis servers (6.2 or later), each by `{ url }`, `{ client }` or `{ options }`: no replicas of one master, no nodes of one Cluster. Use an odd number,
   * because four nodes survive no more failures than three do.
   */
  readonly nodes: readonly RedlockNodeOptions[];
  /**
   * The longest lease, in ms; also of extensions and of `minHold`: longer ones are refused with `LockConfigError`. It must be the same in all
   * processes and never change: it is how long a node that has lost its data may have forgotten a vote that others count on.
   * Default 30 s, at least 100 ms and at most 24.8 days.
   */
  readonly maxLease?: ConfiguredDuration | undefined;
  /**
   * Whether a node votes only when some process has seen its current run for `maxLease`, so that no vote is forgotten while it counts. The
   * process counts on a monotonic clock and notes the run on the node. On new nodes, locks are unavailable for `maxLease` after the first
   * process has started. Default false. Not needed if all nodes run with `appendonly yes` and `appendfsync always`.
   */
  readonly delayedRestart?: boolean | undefined;
  /**
   * The longest time that a node may take to answer, in ms; a tenth of the lease if that is shorter. A node that is silent for
   * that long gets a new connection. Default 500 ms, at least 50 ms and at most 24.8 days.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
}

/** The options after validation. */
export interface RedlockSettings {
  readonly nodes: readonly RedisSettings[];
  readonly maxLease: number;
  readonly delayedRestart: boolean;
  readonly commandTimeout: number;
}

const OPTIONS: OptionNames<RedlockLockProviderOptions> = {
  nodes: true,
  maxLease: true,
  delayedRestart: true,
  commandTimeout: true,
};
const NODE_OPTIONS: OptionNames<RedlockNodeOptions> = { url: true, client: true, options: true };

const FEWEST = 3;
const SHORTEST_LEASE = 100;

/** @throws LockConfigError for options that cannot work. */
export function readRedlockOptions(options: RedlockLockProviderOptions): RedlockSettings {
  checkGiven('RedlockLockProvider', options, 'new RedlockLockProvider({ nodes: [{ url }, { url }, { url }] })');
  const { nodes, delayedRestart = false } = options;
  if (!Array.isArray(nodes) || nodes.length < FEWEST) {
    throw new LockConfigError(
      `RedlockLockProvider needs at least three independent Redis servers in "nodes"${whatIsGiven(nodes)}${unknownIn(options, OPTIONS)} For one server use RedisLockProvider.`,
    );
  }
  refuseUnknown('RedlockLockProvider', options, OPTIONS);
  if (typeof delayedRestart !== 'boolean') {
    throw new LockConfigError(
      `RedlockLockProvider: "delayedRestart" must be true or false, and is ${shown(delayedRestart)}.`,
    );
  }
  const commandTimeout = toMilliseconds(options.commandTimeout ?? '500ms', 'commandTimeout', { min: 50 });
  return {
    nodes: options.nodes.map((node, index) => readNode(node, index, commandTimeout)),
    maxLease: toMilliseconds(options.maxLease ?? '30s', 'maxLease', { min: SHORTEST_LEASE }),
    delayedRestart,
    commandTimeout,
  };
}

function whatIsGiven(nodes: unknown): string {
  if (nodes === undefined) return ', which is undefined: is the variable set?';
  return Array.isArray(nodes) ? `, which lists ${nodes.length}.` : ', which is no list.';
}

function readNode(node: RedlockNodeOptions | undefined, index: number, commandTimeout: number): RedisSettings {
  const owner = `RedlockLockProvider, node ${index + 1}`;
  // A Cluster is refused with a reason of its own.
  const known = Object.hasOwn(Object(node) as object, 'cluster') ? { ...NODE_OPTIONS, cluster: true } : NODE_OPTIONS;
  const settings = { ...readOptions(node as RedlockNodeOptions, owner, known), commandTimeout };
  if (!isCluster(settings)) return settings;
  throw new LockConfigError(
    `${owner} is a Redis Cluster, by ${settings.source.cluster === undefined ? '"client"' : '"cluster"'}, and must be one server: give each server by its own "url", "client" or "options".`,
  );
}
