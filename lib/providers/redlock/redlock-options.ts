import type { ConfiguredDuration } from '../../api/duration.js';
import { duration, flag, type OptionTable, read, refuse, secret } from '../../core/toolkit/options.js';
import {
  isCluster,
  type RedisServerOptions,
  type RedisSettings,
  SERVER,
  SERVER_OWNER,
} from '../redis/client/redis-options.js';

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

const FEWEST = 3;
const SHORTEST_LEASE = 100;

const OPTIONS = {
  nodes: secret('a list of at least three independent Redis servers', (nodes, owner, name) => {
    if (!Array.isArray(nodes)) return undefined;
    if (nodes.length >= FEWEST) return nodes.map((node, index) => readNode(node, `${owner.name}, node ${index + 1}`));
    return refuse(
      owner,
      name,
      `lists ${nodes.length}, but must list at least three independent Redis servers. For one server use RedisLockProvider.`,
    );
  })
    .written()
    .required(),
  maxLease: duration({ min: SHORTEST_LEASE }).or('30s'),
  delayedRestart: flag().or(false),
  commandTimeout: duration({ min: 50 }).or('500ms'),
} satisfies OptionTable<RedlockLockProviderOptions>;

/** @throws LockConfigError for options that cannot work. */
export function readRedlockOptions(options: RedlockLockProviderOptions): RedlockSettings {
  const example = 'new RedlockLockProvider({ nodes: [{ url }, { url }, { url }] })';
  const { nodes, ...settings } = read({ name: 'RedlockLockProvider', example }, options, OPTIONS);
  const { commandTimeout } = settings;
  return { ...settings, nodes: nodes.map((source) => ({ source, commandTimeout, waitReplicas: 0 })) };
}

function readNode(node: unknown, name: string): RedlockNodeOptions {
  const owner = { ...SERVER_OWNER, name, oneOf: ['client', 'url', 'options'] };
  const source = node as RedlockNodeOptions;
  read(owner, source, SERVER);
  if (!isCluster({ source })) return source;
  return refuse(
    owner,
    'client',
    'is one of a Redis Cluster, and must be one of one server: give each server by its own "url", "client" or "options".',
  );
}
