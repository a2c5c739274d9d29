/** One connection to ZooKeeper at a time, for one session: the part of a client library that the locks need. */
export interface ZooKeeperClient {
  /** The id of the session; 0 before it is opened. */
  readonly sessionId: bigint;
  /** The timeout of the session that the server has granted, in ms. Only once connected. */
  readonly sessionTimeout: number;
  /** When the last answer arrived. */
  readonly heardAt: number;
  /** Since when there is a request without an answer, and no answer to an earlier one; undefined if all are answered. */
  readonly silentSince: number | undefined;
  /**
   * Until when the server that is tried may greet us, or names may be looked up. Then `reconnect` goes on with the next one. Undefined while
   * connected, and between two tries.
   */
  readonly tryUntil: number | undefined;
  /** How many addresses the connect string stands for, as far as is known. */
  readonly addresses: number;

  /** Connects, and reconnects by itself until `close`. */
  connect(): void;

  /** @param data the content of the node; default: the instance that makes it */
  create(path: string, kind: NodeKind, data?: Buffer): Promise<Creation>;
  /**
   * The names of the nodes in this one.
   *
   * @param onChange called once when a node in it comes or goes. When the connection breaks this is forgotten, and the caller has to look again.
   */
  children(path: string, onChange?: () => void): Promise<readonly string[]>;
  /** Answers null if the node does not exist. */
  stat(path: string): Promise<NodeStat | null>;
  /**
   * The node, as this server has it; null if it does not exist.
   *
   * @param onChange called once when the node changes or goes; forgotten as that of {@link children}. Nothing stays for a node that does not exist.
   */
  read(path: string, onChange?: () => void): Promise<NodeValue | null>;
  /** Undoes the `onChange` of {@link read} and {@link children}: nodes live longer than the requests that watch them. */
  unwatch(path: string, onChange: () => void): void;
  /**
   * Notifies those who watch the node.
   *
   * @param data default: the instance that writes
   * @param version fails as `changed` if the node has another version by now; default: whatever it has
   * @returns when that was, by the clock of the leader, in ms since 1970
   */
  write(path: string, data?: Buffer, version?: number): Promise<number>;
  remove(path: string): Promise<void>;

  /** Breaks the connection, or gives up the try to make one, so that the next server is tried, in the same session. */
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

export interface NodeValue extends NodeStat {
  readonly data: Buffer;
  /** How often it was changed. */
  readonly version: number;
}

/** The reports of a client. */
export interface ClientListener {
  onSent(at: number, isWrite: boolean): void;
  /** A write that was sent then is acknowledged. */
  onWritten(sentAt: number): void;
  onConnected(): void;
  /**
   * The connection is lost, or could not be made. Open requests have failed, and watches are gone.
   *
   * @param cause `refused` if the server had answered nothing but refusals; `misconfigured` if our options let us not even try
   */
  onDisconnected(cause: ZooKeeperFailure): void;
  /** The session is over, and this client with it. */
  onExpired(): void;
  /** The server does not accept this client, has closed its session, and this client has given up. */
  onRefused(cause: Error): void;
}

/** Makes a client, which does nothing until `connect`. */
export type ClientFactory = (listener: ClientListener) => ZooKeeperClient;

/**
 * - `no-node`, `exists`, `not-empty`, `changed`: the state of the tree.
 * - `refused`: by an ACL, a quota, a limit.
 * - `unanswered`: it is unknown whether it was executed.
 * - `misconfigured`: by our own options. Nothing was sent.
 */
export type FailureKind = 'no-node' | 'exists' | 'not-empty' | 'changed' | 'refused' | 'unanswered' | 'misconfigured';

/** An operation that did not succeed. */
export class ZooKeeperFailure extends Error {
  /** The operation is refused, and would be refused again by any server. */
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

/** The failure of a request that was not even sent. */
export function noConnection(): ZooKeeperFailure {
  return new ZooKeeperFailure('unanswered', 'There is no connection to ZooKeeper.');
}
