import { type Duration, toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { type RedisLockProviderOptions, readOptions, type RedisSettings } from '../redis/redis-options.js';

/** Where one of the nodes is; exactly one of `client`, `url` and `options`, as for a single server. */
export type RedlockNodeOptions = Pick<RedisLockProviderOptions, 'client' | 'url' | 'options'>;

export interface RedlockProviderOptions {
  /**
   * At least three Redis servers (6.2 or later) that know nothing of each other: no replicas of one master, no nodes of one Cluster. An
   * odd number: a fourth one allows for no more failures than three do.
   */
  readonly nodes: readonly RedlockNodeOptions[];
  /**
   * The longest lease, in ms, also of extensions and of `minHold`: longer ones are refused with `LockConfigError`. The same in all processes and for ever: it is how long a node that
   * has lost its data may have forgotten a vote that others count on.
   */
  readonly maxLease: Duration;
  /**
   * Whether a node votes only when some process has seen its current run for `maxLease`, so that no vote is forgotten while it counts. The
   * process counts on a monotonic clock and notes the run on the node. On new nodes, locks are unavailable for `maxLease` after the first
   * process has started. Default false. Not needed where all nodes run with `appendonly yes` and `appendfsync always`.
   */
  readonly delayedRestart?: boolean | undefined;
  /**
   * How long a node's answer is waited for at most, in ms; a tenth of the lease where that is shorter. A node that is silent for
   * so long loses its connection, and a new one is made. Default 500 ms, at least 50 ms.
   */
  readonly commandTimeout?: Duration | undefined;
}

/** The options, checked. */
export interface RedlockSettings {
  readonly nodes: readonly RedisSettings[];
  readonly maxLease: number;
  readonly delayedRestart: boolean;
  readonly patience: number;
}

const FEWEST = 3;
const SHORTEST_LEASE = 100;

/** @throws LockConfigError for options that cannot work. */
export function readRedlockOptions(options: RedlockProviderOptions): RedlockSettings {
  const { nodes, delayedRestart = false } = options;
  if (!Array.isArray(nodes) || nodes.length < FEWEST) {
    throw new LockConfigError(
      `RedlockProvider needs at least three independent Redis servers in "nodes"; for one server use RedisLockProvider.`,
    );
  }
  const patience = toMilliseconds(options.commandTimeout ?? '500ms', 'commandTimeout', { min: 50 });
  return {
    nodes: options.nodes.map((node, index) => readNode(node, index, patience)),
    maxLease: toMilliseconds(options.maxLease, 'maxLease', { min: SHORTEST_LEASE }),
    delayedRestart,
    patience,
  };
}

function readNode(node: RedlockNodeOptions | undefined, index: number, patience: number): RedisSettings {
  const { client, url, options } = node ?? {};
  try {
    return readOptions({ client, url, options, commandTimeout: patience });
  } catch (cause) {
    if (!(cause instanceof LockConfigError)) throw cause;
    throw new LockConfigError(`RedlockProvider, node ${index + 1}: ${cause.message}`, { cause });
  }
}
