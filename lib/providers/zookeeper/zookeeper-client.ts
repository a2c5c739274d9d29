/** One connection to ZooKeeper at a time, for one session: all that the locks need of a client library. */
export interface ZooKeeperClient {
  /** Of the session that was opened; 0 before. */
  readonly sessionId: bigint;
  /** The session's time-out that the server has granted, in ms. Only once connected. */
  readonly sessionTimeout: number;

  /** Connects, and goes on trying and reconnecting by itself until `close`. */
  connect(): void;

  /** @param data what is in it; by default something for people */
  create(path: string, kind: NodeKind, data?: Buffer): Promise<Creation>;
  /** The names of the nodes in this one. */
  children(path: string): Promise<readonly string[]>;
  /** Answers null where there is no such node. */
  stat(path: string): Promise<NodeStat | null>;
  /**
   * As {@link stat}; `onChange` is called once when the node changes or goes. Until the connection breaks: then the watch
   * is forgotten, and whoever set it looks again. No watch stays where there is no node.
   */
  watch(path: string, onChange: () => void): Promise<NodeStat | null>;
  /** Takes back {@link watch}: nodes live longer than those who watch them. */
  unwatch(path: string, onChange: () => void): void;
  /** Writes something into the node: an acknowledged write is the proof that the session lives. */
  touch(path: string): Promise<void>;
  /** What is in the node, as the server that is asked knows it; null where there is no such node. */
  read(path: string): Promise<NodeValue | null>;
  /** Fails as `changed` if the node has another version by now. */
  replace(path: string, data: Buffer, version: number): Promise<void>;
  remove(path: string): Promise<void>;

  /** Breaks the connection, so that it is made anew, in the same session. */
  reconnect(): void;
  /** Asks the server to end the session, which frees all its nodes. Settles when that is done: never, if nobody answers. */
  close(): Promise<void>;
  /** Ends all sockets and timers, without a word. */
  abandon(): void;
}

export type NodeKind = 'persistent' | 'ephemeral' | 'ephemeral-sequential';

export interface Creation {
  /** The whole path, which is longer than what was asked for if the node is sequential. */
  readonly path: string;
  /** Its zxid. */
  readonly createdAt: bigint;
}

export interface NodeStat {
  /** The zxid of its creation. */
  readonly createdAt: bigint;
  /** The session that it lives with; 0 for a persistent node. */
  readonly owner: bigint;
}

export interface NodeValue {
  readonly data: Buffer;
  /** How often it was changed. */
  readonly version: number;
}

/** What a client says unasked. */
export interface ClientListener {
  onConnected(): void;
  /** What is unanswered will not be answered any more, and watches are gone. */
  onDisconnected(): void;
  /** The session is over, and this client with it. */
  onExpired(): void;
  /** The servers do not accept our credentials, and this client has given up. */
  onRefused(cause: Error): void;
}

/** How the client is made; it does nothing until `connect`. */
export type ClientFactory = (listener: ClientListener) => ZooKeeperClient;

/**
 * - `no-node`, `exists`, `not-empty`, `changed`: what the tree was like.
 * - `refused`: by an ACL, a quota, a limit.
 * - `unanswered`: nobody knows whether it was done.
 */
export type FailureKind = 'no-node' | 'exists' | 'not-empty' | 'changed' | 'refused' | 'unanswered';

/** An operation that did not succeed. */
export class ZooKeeperFailure extends Error {
  constructor(
    readonly kind: FailureKind,
    message: string,
  ) {
    super(message);
    this.name = new.target.name;
  }
}

export function isFailure(error: unknown, ...kinds: readonly FailureKind[]): boolean {
  return error instanceof ZooKeeperFailure && kinds.includes(error.kind);
}
