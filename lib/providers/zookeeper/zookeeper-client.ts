/** One connection to ZooKeeper at a time, for one session: the part of a client library that the locks need. */
export interface ZooKeeperClient {
  /** The id of the session; 0 before it is opened. */
  readonly sessionId: bigint;
  /** The timeout of the session that the server has granted, in ms. Only once connected. */
  readonly sessionTimeout: number;

  /** Connects, and reconnects by itself until `close`. */
  connect(): void;

  /** @param data the content of the node; default: the instance that makes it */
  create(path: string, kind: NodeKind, data?: Buffer): Promise<Creation>;
  /** The names of the nodes in this one. */
  children(path: string): Promise<readonly string[]>;
  /** Answers null if the node does not exist. */
  stat(path: string): Promise<NodeStat | null>;
  /**
   * As {@link stat}; `onChange` is called once when the node changes or goes. When the connection breaks the watch
   * is forgotten, and its owner has to look again. No watch stays for a node that does not exist.
   */
  watch(path: string, onChange: () => void): Promise<NodeStat | null>;
  /** As {@link children}; `onChange` is called once when a node in it comes or goes. Forgotten as that of {@link watch}. */
  watchChildren(path: string, onChange: () => void): Promise<readonly string[]>;
  /** Undoes {@link watch} and {@link watchChildren}: nodes live longer than the attempts that watch them. */
  unwatch(path: string, onChange: () => void): void;
  /**
   * Writes the content again: an acknowledged write is the proof that the session lives, and those who watch the node are notified.
   */
  touch(path: string): Promise<void>;
  /** The content of the node, as this server has it; null if the node does not exist. */
  read(path: string): Promise<NodeValue | null>;
  /** Fails as `changed` if the node has another version by now. */
  replace(path: string, data: Buffer, version: number): Promise<void>;
  remove(path: string): Promise<void>;

  /** Breaks the connection, so that it is opened again, in the same session. */
  reconnect(): void;
  /** Asks the server to end the session, which removes all its nodes. Settles when that is done: never, if no server answers. */
  close(): Promise<void>;
  /** Ends all sockets and timers, without notifying the server. */
  abandon(): void;
}

export type NodeKind = 'persistent' | 'ephemeral' | 'ephemeral-sequential';

export interface Creation {
  /** The whole path, with the sequence number if the node is sequential. */
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

/** The reports of a client. */
export interface ClientListener {
  onConnected(): void;
  /** Open requests will not be answered any more, and watches are gone. */
  onDisconnected(): void;
  /** The session is over, and this client with it. */
  onExpired(): void;
  /** The servers do not accept our credentials, and this client has given up. */
  onRefused(cause: Error): void;
}

/** Makes a client, which does nothing until `connect`. */
export type ClientFactory = (listener: ClientListener) => ZooKeeperClient;

/**
 * - `no-node`, `exists`, `not-empty`, `changed`: the state of the tree.
 * - `refused`: by an ACL, a quota, a limit.
 * - `unanswered`: it is unknown whether it was executed.
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
