import type { Clock } from '../../lib/api/clock.js';
import {
  type ClientListener,
  type Creation,
  type NodeKind,
  type NodeStat,
  type NodeValue,
  SocketClient,
} from '../../lib/providers/zookeeper/socket-client.js';
import { type FailureKind, isFailure, ZooKeeperFailure } from '../../lib/providers/zookeeper/zookeeper-failure.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import { contextFor } from '../backend-context.js';

/** No server is needed: the lagging server overrides every request. */
const SETTINGS = readOptions({ connectString: 'nowhere', sessionTimeout: 12_000 });

interface Change {
  readonly kind: 'create' | 'remove' | 'write';
  readonly path: string;
  readonly owner: bigint;
}

/**
 * An ensemble in which each client has its own server, and each server applies the leader's changes when the test says
 * so. ZooKeeper's guarantees hold: all writes have one order, a session's requests stay in order, a read sees earlier
 * writes of the same session, and a watch fires before its client sees the change.
 */
export class LaggingZooKeeper {
  readonly log: Change[] = [];
  readonly servers: LaggingServer[] = [];
  /** The leader's nodes. Each node counts its sequential children. */
  readonly leader = new Map<string, { children: number }>();

  constructor(readonly clock: Clock) {}

  readonly connect = (listener: ClientListener): LaggingServer => {
    const server = new LaggingServer(this, listener, BigInt(this.servers.length + 1));
    this.servers.push(server);
    return server;
  };

  /** Returns the nodes in a folder, as the leader has them. */
  namesIn(folder: string): readonly string[] {
    return namesIn(this.leader, folder);
  }

  /** All steps that can happen next. */
  get steps(): readonly (() => void)[] {
    return this.servers.flatMap((server) => server.steps);
  }
}

/** A server and the connection of its only client. */
export class LaggingServer extends SocketClient {
  /** How many entries of the leader's log this server has applied. */
  #applied = 0;
  readonly #nodes = new Map<string, NodeStat>();
  readonly #requests: (() => void)[] = [];
  readonly #watches = new Map<string, Set<() => void>>();
  readonly #childWatches = new Map<string, Set<() => void>>();

  constructor(
    private readonly ensemble: LaggingZooKeeper,
    private readonly owner: ClientListener,
    sessionId: bigint,
  ) {
    super(SETTINGS, contextFor([], { clock: ensemble.clock }), owner);
    this.sessionId = sessionId;
    this.sessionTimeout = SETTINGS.sessionTimeout;
    // No server is ever silent.
    this.heardAt = Infinity;
  }

  get steps(): readonly (() => void)[] {
    const [request] = this.#requests;
    const isBehind = this.#applied < this.ensemble.log.length;
    return [
      ...(isBehind ? [() => this.#apply()] : []),
      ...(request
        ? [
            () => {
              this.#requests.shift();
              request();
            },
          ]
        : []),
    ];
  }

  override connect(): void {
    queueMicrotask(() => {
      this.owner.onConnected();
    });
  }

  override create(path: string, kind: NodeKind): Promise<Creation> {
    return this.#write((leader) => {
      const parent = leader.get(parentOf(path));
      if (!parent && parentOf(path) !== '') throw failure('no-node');
      const sequence = kind === 'ephemeral-sequential' ? String(parent?.children).padStart(10, '0') : '';
      if (leader.has(path + sequence)) throw failure('exists');
      if (parent) parent.children += 1;
      leader.set(path + sequence, { children: 0 });
      return { kind: 'create', path: path + sequence, owner: kind === 'persistent' ? 0n : this.sessionId };
    }).then((change) => ({ path: change.path, createdAt: BigInt(this.ensemble.log.indexOf(change) + 1) }));
  }

  override write(path: string): Promise<number | null> {
    const change = (leader: LaggingZooKeeper['leader']): Change => {
      if (!leader.has(path)) throw failure('no-node');
      return { kind: 'write', path, owner: 0n };
    };
    return this.#write(change).then(() => 0, otherwise(null));
  }

  override remove(path: string): Promise<boolean> {
    const change = (leader: LaggingZooKeeper['leader']): Change => {
      if (!leader.has(path)) throw failure('no-node');
      if (namesIn(leader, path).length > 0) throw failure('not-empty');
      leader.delete(path);
      return { kind: 'remove', path, owner: 0n };
    };
    return this.#write(change).then(() => true, otherwise(false));
  }

  override children(path: string, onChange?: () => void): Promise<readonly string[]> {
    return this.#read(() => {
      if (!this.#nodes.has(path)) return [];
      if (onChange) listen(this.#childWatches, path, onChange);
      return namesIn(this.#nodes, path);
    });
  }

  override stat(path: string): Promise<NodeStat | null> {
    return this.#read(() => this.#nodes.get(path) ?? null);
  }

  override read(path: string, onChange?: () => void): Promise<NodeValue | null> {
    return this.#read(() => {
      const node = this.#nodes.get(path);
      if (node && onChange) listen(this.#watches, path, onChange);
      return node ? { ...node, data: Buffer.alloc(0), version: 0 } : null;
    });
  }

  override unwatch(path: string, onChange: () => void): void {
    this.#watches.get(path)?.delete(onChange);
    this.#childWatches.get(path)?.delete(onChange);
  }

  override reconnect(): void {
    throw new Error('No reconnect is expected because no time passes.');
  }

  override async close(): Promise<void> {
    // The session is no longer needed, and neither is anything it has left.
  }

  override abandon(): void {
    // There are no sockets.
  }

  #apply(): void {
    const change = this.ensemble.log[this.#applied] as Change;
    this.#applied += 1;
    const { kind, path, owner } = change;
    if (kind === 'create') this.#nodes.set(path, { createdAt: BigInt(this.#applied), owner });
    if (kind === 'remove') this.#nodes.delete(path);
    if (kind !== 'create') fire(this.#watches, path);
    if (kind !== 'write') fire(this.#childWatches, parentOf(path));
  }

  #write(change: (leader: LaggingZooKeeper['leader']) => Change): Promise<Change> {
    const sentAt = this.ensemble.clock.now();
    return this.#read(() => {
      const { log, leader } = this.ensemble;
      const made = change(leader);
      log.push(made);
      while (this.#applied < log.length) this.#apply();
      this.owner.onWritten(sentAt);
      return made;
    }, true);
  }

  #read<T>(answer: () => T, isWrite = false): Promise<T> {
    this.owner.onSent(this.ensemble.clock.now(), isWrite);
    return new Promise((resolve, reject) => {
      this.#requests.push(() => {
        try {
          resolve(answer());
        } catch (error) {
          reject(error);
        }
      });
    });
  }
}

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf('/'));

function namesIn(nodes: ReadonlyMap<string, unknown>, folder: string): string[] {
  return [...nodes.keys()].filter((path) => parentOf(path) === folder).map((path) => path.slice(folder.length + 1));
}

function listen(watches: Map<string, Set<() => void>>, path: string, listener: () => void): void {
  watches.set(path, (watches.get(path) ?? new Set()).add(listener));
}

function fire(watches: Map<string, Set<() => void>>, path: string): void {
  const listeners = watches.get(path) ?? [];
  watches.delete(path);
  for (const listener of listeners) listener();
}

function failure(kind: FailureKind): ZooKeeperFailure {
  return new ZooKeeperFailure(kind, kind);
}

/** Returns a handler that resolves a request for a missing node to `missing`. */
function otherwise<T>(missing: T): (error: unknown) => T {
  return (error) => {
    if (isFailure(error, 'no-node')) return missing;
    throw error;
  };
}
