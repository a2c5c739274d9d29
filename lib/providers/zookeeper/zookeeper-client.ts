/** A client for one session, with at most one connection at a time: the part of ZooKeeper's API that locks need. */
export interface ZooKeeperClient {
  /** 0 before the session is opened. */
  readonly sessionId: bigint;
  /** The session timeout granted by the server, in ms. Set once connected. */
  readonly sessionTimeout: number;
  /** When the last response arrived. */
  readonly heardAt: number;
  /** When the server stopped answering requests; undefined if all have been answered. */
  readonly silentSince: number | undefined;
  /**
   * Deadline of the current connection attempt or name lookup. After that, `reconnect` moves on to the next server.
   * Undefined while connected and between two attempts.
   */
  readonly tryUntil: number | undefined;
  /** How many addresses the connect string is known to resolve to. */
  readonly addresses: number;

  /** Connects, and reconnects automatically until `close`. */
  connect(): void;

  /** @param data the node's content; default: the creating instance */
  create(path: string, kind: NodeKind, data?: Buffer): Promise<Creation>;
  /**
   * Lists the names of the child nodes.
   *
   * @param onChange called once when a child is created or removed. It is dropped when the connection is lost.
   */
  children(path: string, onChange?: () => void): Promise<readonly string[]>;
  /** Resolves to null if the node does not exist. */
  stat(path: string): Promise<NodeStat | null>;
  /**
   * Reads this server's copy of the node; null if it does not exist.
   *
   * @param onChange called once when the node is changed or removed. It is dropped when the connection is lost, and not
   * registered if the node does not exist.
   */
  read(path: string, onChange?: () => void): Promise<NodeValue | null>;
  /**
   * Unregisters an `onChange` passed to {@link read} or {@link children}, because a node may outlive the requests that watch
   * it.
   */
  unwatch(path: string, onChange: () => void): void;
  /**
   * Writes to the node, which triggers the watches on it.
   *
   * @param data default: the writing instance
   * @param version if given, the write fails with `changed` if the node has a different version
   * @returns the time of the write by the leader's clock
   */
  write(path: string, data?: Buffer, version?: number): Promise<number>;
  remove(path: string): Promise<void>;

  /** Drops the connection or the current attempt, and tries the next server with the same session. */
  reconnect(): void;
  /** Requests the end of the session, which removes all its nodes. Never settles if no server responds. */
  close(): Promise<void>;
  /** Closes all sockets and clears all timers without notifying the server. */
  abandon(): void;
}

export type NodeKind = 'persistent' | 'ephemeral' | 'ephemeral-sequential';

export interface Creation {
  /** The full path, including the sequence number. */
  readonly path: string;
  /** The zxid of the create. */
  readonly createdAt: bigint;
}

export interface NodeStat {
  /** The zxid of the create. */
  readonly createdAt: bigint;
  /** The session that owns an ephemeral node; 0 for a persistent node. */
  readonly owner: bigint;
}

export interface NodeValue extends NodeStat {
  readonly data: Buffer;
  /** The number of changes. */
  readonly version: number;
}

export interface ClientListener {
  onSent(at: number, isWrite: boolean): void;
  /** A write sent at `sentAt` has been acknowledged. */
  onWritten(sentAt: number): void;
  onConnected(): void;
  /**
   * The connection was lost or could not be established. Open requests have failed, and watches are gone.
   *
   * @param cause `refused` if the server sent only refusals; `misconfigured` if our options prevented any
   * attempt
   */
  onDisconnected(cause: ZooKeeperFailure): void;
  /** The session has ended, and this client has stopped. */
  onExpired(): void;
  /** The server rejected this client and closed the session. The client has stopped. */
  onRefused(cause: Error): void;
}

/** Creates a client that does nothing until `connect` is called. */
export type ClientFactory = (listener: ClientListener) => ZooKeeperClient;

/**
 * Why an operation failed:
 * - `no-node`, `exists`, `not-empty`, `changed`: the state of the tree.
 * - `refused`: an ACL, a quota, or a limit.
 * - `unanswered`: it is unknown whether the operation was executed.
 * - `misconfigured`: our own options are invalid. Nothing was sent.
 */
export type FailureKind = 'no-node' | 'exists' | 'not-empty' | 'changed' | 'refused' | 'unanswered' | 'misconfigured';

export class ZooKeeperFailure extends Error {
  /** Whether all servers would refuse the operation again. */
  readonly isDefinite: boolean;

  constructor(
    readonly kind: FailureKind,
    message: string,
    { isDefinite = false, ...options }: ErrorOptions & { readonly isDefinite?: boolean } = {},
  ) {
    super(message, options);
    this.name = new.target.name;
    this.isDefinite = isDefinite;
  }
}

export function isFailure(error: unknown, ...kinds: readonly FailureKind[]): error is ZooKeeperFailure {
  return error instanceof ZooKeeperFailure && kinds.includes(error.kind);
}

/** The failure of a request that was never sent. */
export function noConnection(): ZooKeeperFailure {
  return new ZooKeeperFailure('unanswered', 'There is no connection to ZooKeeper.');
}
