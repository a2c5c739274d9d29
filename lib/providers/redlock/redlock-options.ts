import type { ConfiguredDuration } from '../../api/duration.js';
import { duration, flag, type OptionTable, read, refuse, secret } from '../../core/toolkit/options.js';
import {
  isCluster,
  type RedisServerOptions,
  type RedisSettings,
  SERVER,
  SERVER_OWNER,
} from '../redis/client/redis-options.js';

/** One node's address: exactly one of `client`, `url`, and `options`, as for a single server. */
export type RedlockNodeOptions = RedisServerOptions;

export interface RedlockLockProviderOptions {
  /**
   * At least three independent Redis servers (6.2 or later), each as `{ url }`, `{ client }`, or `{ options }`. Don't
   * use replicas of one master or nodes of one Cluster. Use an odd number, because four nodes tolerate no more failures
   * than three.
   */
  readonly nodes: readonly RedlockNodeOptions[];
  /**
   * The longest lease, in ms. It also limits extensions and `minHold`. Longer values are rejected with
   * `LockConfigError`. Use the same value in all processes, and never change it: it bounds how long a vote that a node
   * has lost may still count elsewhere. Default 30 s, at least 100 ms and at most 24.8 days.
   */
  readonly maxLease?: ConfiguredDuration | undefined;
  /**
   * Whether a restarted node votes only after a process has observed it for `maxLease`, when every vote it may have
   * lost has expired. The process measures the time on its monotonic clock, and stores the result on the node. With new
   * nodes, locks are unavailable for `maxLease` after the first process starts. Default false. Not needed if all nodes
   * run with `appendonly yes` and `appendfsync always`.
   */
  readonly delayedRestart?: boolean | undefined;
  /**
   * How long a node may take to reply, in ms; at most a tenth of the lease. The provider reconnects to a node that is
   * silent for this long. Default 500 ms, at least 50 ms and at most 24.8 days.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
}

/** The validated options. */
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
      `lists ${nodes.length}, but must list at least three independent Redis servers. For one server, use RedisLockProvider.`,
    );
  })
    .written()
    .required(),
  maxLease: duration({ min: SHORTEST_LEASE }).or('30s'),
  delayedRestart: flag().or(false),
  commandTimeout: duration({ min: 50 }).or('500ms'),
} satisfies OptionTable<RedlockLockProviderOptions>;

/** @throws LockConfigError for invalid options */
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
    'is a Redis Cluster client, but must be a client of a single server: pass each server as its own "url", "client" or "options".',
  );
}
