import type * as Library from 'node-zookeeper-client';
import { LockConfigError } from '../../api/errors.js';
import type { Instance } from '../../api/lock-provider.js';
import { contentFor } from './node-content.js';
import {
  type ClientFactory,
  type ClientListener,
  type Creation,
  type FailureKind,
  isFailure,
  type NodeKind,
  type NodeStat,
  type NodeValue,
  type ZooKeeperClient,
  ZooKeeperFailure,
} from './zookeeper-client.js';
import type { ZooKeeperAcl, ZooKeeperSettings } from './zookeeper-options.js';

/** The connection below the library's client, which the library does not export: the part that is used here. See {@link heal}. */
interface Connection {
  /** The zxid of the last answer. */
  zxid: Buffer;
  /** The number of the next request: 32 bits, and the library never restarts it. */
  xid: number;
  socket?: { destroy(error?: Error): void };
  pendingBuffer: Buffer | null;
  packetQueue: { queue: unknown[] };
  watcherManager: { dataWatchers: Record<string, unknown>; childWatchers: Record<string, unknown> };
  onSocketData: (this: Connection, data: Buffer) => void;
  connect: (this: Connection) => void;
  findNextServer: (this: Connection, use: (server: unknown) => void) => void;
}

// The pause before the library tries all servers once more; its default of 1 s is a third of a short session.
const SPIN_DELAY = 250;
const LAST_XID = 2 ** 31 - 1;

/** @throws LockConfigError when `node-zookeeper-client` is not installed. */
export async function nodeZooKeeperClients(settings: ZooKeeperSettings, instance: Instance): Promise<ClientFactory> {
  let library: typeof Library;
  try {
    // An optional peer: imported only by applications that use this provider.
    library = await import('node-zookeeper-client');
  } catch (cause) {
    throw new LockConfigError(
      'ZooKeeperLockProvider needs the package "node-zookeeper-client": npm install node-zookeeper-client.',
      { cause },
    );
  }
  const content = contentFor(instance);
  return (listener) => new NodeZooKeeperClient(library, settings, content, listener);
}

/** The client on node-zookeeper-client 1.1. The only file that uses that library. */
class NodeZooKeeperClient implements ZooKeeperClient {
  readonly #library: typeof Library;
  readonly #client: Library.Client;
  readonly #connection: Connection;
  readonly #acl: Library.ACL[];
  readonly #watches = new Map<string, Watch>();
  #isConnected = false;
  #isClosed = false;
  #onClosed: (() => void) | undefined;

  constructor(
    library: typeof Library,
    settings: ZooKeeperSettings,
    private readonly content: Buffer,
    listener: ClientListener,
  ) {
    this.#library = library;
    // Retries of the library would create a second node after a lost reply.
    this.#client = library.createClient(settings.servers, {
      sessionTimeout: settings.sessionTimeout,
      spinDelay: SPIN_DELAY,
      retries: 0,
    });
    this.#connection = (this.#client as unknown as { connectionManager: Connection }).connectionManager;
    this.#acl = settings.acl.map((entry) => toAcl(library, entry));
    if (settings.auth) this.#client.addAuthInfo(settings.auth.scheme, Buffer.from(settings.auth.credentials));
    heal(this.#connection, () => this.#isClosed);
    this.#client.on('connected', () => {
      this.#isConnected = true;
      listener.onConnected();
    });
    this.#client.on('disconnected', () => {
      this.#isConnected = false;
      this.#watches.clear();
      this.#onClosed?.();
      listener.onDisconnected();
    });
    this.#client.on('expired', () => {
      this.#isConnected = false;
      listener.onExpired();
    });
    this.#client.on('authenticationFailed', () => {
      this.#isConnected = false;
      listener.onRefused(new Error('ZooKeeper does not accept the scheme or the credentials of "auth".'));
    });
  }

  get sessionId(): bigint {
    return this.#client.getSessionId().readBigUInt64BE();
  }

  get sessionTimeout(): number {
    return this.#client.getSessionTimeout();
  }

  connect(): void {
    this.#client.connect();
  }

  create(path: string, kind: NodeKind, data = this.content): Promise<Creation> {
    const { CreateMode } = this.#library;
    const mode = {
      persistent: CreateMode.PERSISTENT,
      ephemeral: CreateMode.EPHEMERAL,
      'ephemeral-sequential': CreateMode.EPHEMERAL_SEQUENTIAL,
    }[kind];
    return this.#ask((callback) => {
      this.#client.create(path, data, this.#acl, mode, (error, created) => {
        // The answer to a write contains the zxid of that write: it is made where writes are applied, one after the other (3.8:
        // `FinalRequestProcessor`, called by `CommitProcessor.processWrite`). The library keeps it, but does not pass it on.
        callback(error, error ? undefined : { path: created, createdAt: this.#connection.zxid.readBigInt64BE() });
      });
    });
  }

  children(path: string): Promise<readonly string[]> {
    return this.#ask((callback) => {
      this.#client.getChildren(path, callback);
    });
  }

  stat(path: string): Promise<NodeStat | null> {
    return this.#ask((callback) => {
      this.#client.exists(path, (error, stat: Library.Stat | null) => {
        callback(error, stat && statOf(stat));
      });
    });
  }

  async watch(path: string, onChange: () => void): Promise<NodeStat | null> {
    try {
      // Not exists(), which leaves a watch on the server also for a node that does not exist (Curator, LockInternals).
      return await this.#watch(path, onChange, (fire, callback) => {
        this.#client.getData(path, fire, (error, _data, stat) => {
          callback(error, error ? undefined : statOf(stat));
        });
      });
    } catch (error) {
      if (isFailure(error, 'no-node')) return null;
      throw error;
    }
  }

  watchChildren(path: string, onChange: () => void): Promise<readonly string[]> {
    return this.#watch(path, onChange, (fire, callback) => {
      this.#client.getChildren(path, fire, callback);
    });
  }

  unwatch(path: string, onChange: () => void): void {
    this.#watches.get(path)?.listeners.delete(onChange);
  }

  async touch(path: string): Promise<void> {
    await this.#ask((callback) => {
      this.#client.setData(path, this.content, callback);
    });
  }

  async read(path: string): Promise<NodeValue | null> {
    try {
      return await this.#ask<NodeValue>((callback) => {
        this.#client.getData(path, (error, data: Buffer | undefined, stat) => {
          // Another library may have made it with no content.
          callback(error, error ? undefined : { data: data ?? Buffer.alloc(0), version: stat.version });
        });
      });
    } catch (error) {
      if (isFailure(error, 'no-node')) return null;
      throw error;
    }
  }

  async replace(path: string, data: Buffer, version: number): Promise<void> {
    await this.#ask((callback) => {
      this.#client.setData(path, data, version, callback);
    });
  }

  async remove(path: string): Promise<void> {
    await this.#ask<undefined>((callback) => {
      this.#client.remove(path, (error) => {
        callback(error, undefined);
      });
    });
  }

  reconnect(): void {
    // With an error, because only then the library stops its connection timer.
    this.#connection.socket?.destroy(new Error('The connection is given up.'));
  }

  async close(): Promise<void> {
    if (!this.#isConnected) return;
    const closed = new Promise<void>((resolve) => {
      this.#onClosed = resolve;
    });
    this.#client.close();
    await closed;
  }

  abandon(): void {
    this.#isClosed = true;
    this.reconnect();
  }

  /** Asks with a watch, of which nothing stays when the question fails. */
  async #watch<T>(
    path: string,
    onChange: () => void,
    send: (fire: () => void, callback: Callback<T>) => void,
  ): Promise<T> {
    // One watcher a path for the library, which never forgets a watcher, also those of attempts that have left. No path is watched
    // both for its content and for its children: locks are a level below their folders.
    let watch = this.#watches.get(path);
    if (!watch) {
      watch = new Watch(() => this.#watches.delete(path));
      this.#watches.set(path, watch);
    }
    const { fire } = watch;
    watch.listeners.add(onChange);
    try {
      return await this.#ask<T>((callback) => {
        send(fire, callback);
      });
    } catch (error) {
      watch.listeners.delete(onChange);
      if (watch.listeners.size === 0 && this.#watches.get(path) === watch) this.#watches.delete(path);
      throw error;
    }
  }

  #ask<T>(send: (callback: Callback<T>) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      // The library would keep the request and send it after the reconnect, when no caller wants it any more.
      if (!this.#isConnected) {
        reject(new ZooKeeperFailure('unanswered', 'There is no connection to ZooKeeper.'));
        return;
      }
      send((error, answer) => {
        if (error) reject(this.#failureOf(error));
        else resolve(answer as T);
      });
    });
  }

  #failureOf(error: Error | Library.Exception): ZooKeeperFailure {
    const { Exception } = this.#library;
    const code = 'code' in error ? error.code : NaN;
    const kinds: Record<number, FailureKind> = {
      [Exception.NO_NODE]: 'no-node',
      [Exception.NODE_EXISTS]: 'exists',
      [Exception.NOT_EMPTY]: 'not-empty',
      [Exception.BAD_VERSION]: 'changed',
      [Exception.CONNECTION_LOSS]: 'unanswered',
      [Exception.OPERATION_TIMEOUT]: 'unanswered',
      [Exception.SESSION_EXPIRED]: 'unanswered',
    };
    return new ZooKeeperFailure(kinds[code] ?? 'refused', `ZooKeeper answers ${error.name} (${code}).`);
  }
}

type Callback<T> = (error: Error | Library.Exception | null, answer?: T) => void;

/** The listeners to call when a node changes or goes. */
class Watch {
  readonly listeners = new Set<() => void>();

  constructor(private readonly onFired: () => void) {}

  readonly fire = (): void => {
    this.onFired();
    for (const listener of this.listeners) listener();
  };
}

/**
 * Corrects the faults of the library when a connection breaks (1.1.3, its last release, of 2022). All are in its
 * ConnectionManager:
 * - Half an answer stays in its buffer and garbles the next connection.
 * - Requests that were not written yet are sent on the next connection, after their callers have got an error.
 * - All watches are set again in one packet, which the server refuses beyond 1 MB, and then always. We look again instead.
 * - An unknown error code (such as SESSION_MOVED) is thrown out of the socket's handler and ends the process.
 * - It cannot be closed while it is not connected.
 * - Its requests are numbered without limit, and beyond 2^31 none can be written any more; but its pings can, so the session, and
 *   all locks in it, would never end. (At 300 locks a second that is after a month.)
 */
function heal(connection: Connection, isClosed: () => boolean): void {
  const { onSocketData, connect, findNextServer } = connection;
  let { xid } = connection;
  Object.defineProperty(connection, 'xid', {
    get: () => xid,
    set: (next: number) => {
      xid = next > LAST_XID ? 1 : next;
    },
  });
  connection.onSocketData = function (data) {
    try {
      onSocketData.call(this, data);
    } catch (error) {
      this.socket?.destroy(error as Error);
    }
  };
  connection.connect = function () {
    this.pendingBuffer = null;
    this.packetQueue.queue = [];
    this.watcherManager.dataWatchers = {};
    this.watcherManager.childWatchers = {};
    connect.call(this);
  };
  connection.findNextServer = function (use) {
    findNextServer.call(this, (server) => {
      if (!isClosed()) use(server);
    });
  };
}

function toAcl(library: typeof Library, { scheme, id, permissions }: ZooKeeperAcl): Library.ACL {
  const { Permission } = library;
  const bits: Record<string, number> = {
    c: Permission.CREATE,
    d: Permission.DELETE,
    r: Permission.READ,
    w: Permission.WRITE,
    a: Permission.ADMIN,
  };
  const sum = permissions.split(/(?:)/u).reduce((all, letter) => all | (bits[letter] ?? 0), 0);
  return new library.ACL(sum, new library.Id(scheme, id));
}

function statOf(stat: Library.Stat): NodeStat {
  return { createdAt: stat.czxid.readBigInt64BE(), owner: stat.ephemeralOwner.readBigUInt64BE() };
}
