import { connect, isIP, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import type { BackendContext } from '../../api/lock-provider.js';
import { nextTick } from '../../core/toolkit/real-timers.js';
import { backOff, pause } from '../../core/toolkit/timing.js';
import { FrameSplitter } from './frame-splitter.js';
import { encode, type Field, JuteReader } from './jute.js';
import { contentFor } from './node-content.js';
import { type ServerAddress, ServerAddresses } from './server-addresses.js';
import { tlsFault } from './tls-fault.js';
import { CLOSES_SESSION, failureOf, noConnection, SESSION_GONE, ZooKeeperFailure } from './zookeeper-failure.js';
import { startTimeoutOf, type ZooKeeperAcl, type ZooKeeperSettings } from './zookeeper-options.js';

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
  /** The session has ended. Must call `abandon`. */
  onExpired(): void;
  /** The server rejected this client and closed the session. Must call `abandon`. */
  onRefused(cause: ZooKeeperFailure): void;
}

/** Operation codes (`ZooDefs.OpCode`). */
const CREATE = 1;
const DELETE = 2;
const EXISTS = 3;
const GET_DATA = 4;
const SET_DATA = 5;
const GET_CHILDREN = 8;
const AUTH = 100;
const CLOSE_SESSION = -11;

const WRITES: readonly unknown[] = [CREATE, DELETE, SET_DATA];

/** The permission that a request needs, on its node or on the parent. */
const RIGHTS: Readonly<Record<number, { readonly permission: string; readonly isOfParent: boolean }>> = {
  [CREATE]: { permission: 'c (create)', isOfParent: true },
  [DELETE]: { permission: 'd (delete)', isOfParent: true },
  [GET_DATA]: { permission: 'r (read)', isOfParent: false },
  [GET_CHILDREN]: { permission: 'r (read)', isOfParent: false },
  [SET_DATA]: { permission: 'w (write)', isOfParent: false },
};

const PROTOCOL = 0;
/** Don't connect to a server without a quorum: it can't grant locks. */
const READ_ONLY = false;
const ANY_VERSION = -1;
/** `CreateMode`: 1 is ephemeral, 2 is sequential. */
const FLAGS: Record<NodeKind, number> = { persistent: 0, ephemeral: 1, 'ephemeral-sequential': 3 };
const PERMISSIONS: Record<string, number> = { r: 1, w: 2, c: 4, d: 8, a: 16 };

/** Requests are numbered from 1. At 300 locks a second, 31 bits last a month. */
const LAST_XID = 2 ** 31 - 1;
const NOTIFICATION_XID = -1;
const AUTH_XID = -4;

/** The maximum delay between two rounds of connection attempts. */
const MAX_ROUND_DELAY_MS = 250;
/** Backoff while the servers reject us, in ms. At most a quarter of the session timeout. */
const REFUSED = { first: 250, most: 5_000 };
/** A connection that ends sooner than this counts as a failed attempt. */
const SHORT_CONNECTION_MS = 1_000;
/**
 * How long a server may take to accept a connection and the session, because any server may hang. At most a quarter of
 * the session timeout.
 */
const CONNECT_TIMEOUT_MS = 2_000;
/**
 * The first round takes at most this fraction of the startup timeout, even if all servers but the last hang. Each later
 * round gets twice as long, in case all servers are slow.
 */
const FIRST_ROUND = 3 / 4;
/** The fraction of the startup timeout after which a round starts without names that are still being resolved. */
const LOOKUPS = 1 / 5;

/** A request that was sent but not answered. */
interface OpenRequest {
  readonly xid: number;
  readonly fields: readonly Field[];
  readonly sentAt: number;
  readonly onAnswer: (answer: JuteReader, zxid: bigint) => void;
  readonly fail: (failure: ZooKeeperFailure) => void;
}

/**
 * A client for one session, with at most one connection at a time: the part of ZooKeeper's API that locks need.
 *
 * Implements the protocol of ZooKeeper 3.4 and later. It doesn't repeat requests, restore watches after a reconnect,
 * send pings, or detect silent connections. The {@link Session} sends requests often enough and calls `reconnect`.
 */
export class SocketClient {
  /** 0 before the session is opened. */
  sessionId = 0n;
  /** The session timeout granted by the server, in ms. Set once connected. */
  sessionTimeout = 0;
  /** When the last response arrived. */
  heardAt = 0;
  /**
   * Deadline of the current connection attempt or name lookup. After that, `reconnect` moves on to the next server.
   * Undefined while connected and between two attempts.
   */
  tryUntil: number | undefined;
  #password = Buffer.alloc(16);
  /** The latest zxid seen. A server that is behind it rejects the session, so reads never go back in time. */
  #zxid = 0n;
  /** The xid of the last request. */
  #xid: number;
  readonly #servers: ServerAddresses;
  #socket: Socket | undefined;
  #isConnected = false;
  #isOver = false;
  readonly #ending = new AbortController();
  #greetedAt = 0;
  /** How many connection attempts in a row were rejected by a server or prevented by invalid options. */
  #refusals = 0;
  /** The latest response on this connection, if it was a refusal. */
  #refusal: ZooKeeperFailure | undefined;
  /** Whether this connection has returned any answer other than a refusal. */
  #isServed = false;
  /** Requests in the order sent, which is also their response order. */
  readonly #open: OpenRequest[] = [];
  /** This tick's requests, sent together because one packet is cheaper than several. */
  #unsent: Buffer[] = [];
  /**
   * Callbacks by path. No path is watched for both content and children, because locks are one level below their
   * folders.
   */
  readonly #watches = new Map<string, Set<() => void>>();
  readonly #content: Buffer;
  readonly #acl: readonly Field[];

  constructor(
    private readonly settings: ZooKeeperSettings,
    private readonly context: Pick<BackendContext, 'clock' | 'random' | 'instance'>,
    private readonly listener: ClientListener,
    lastXid = 0,
  ) {
    this.#xid = lastXid;
    this.#content = contentFor(context.instance);
    this.#acl = [settings.acl.length, ...settings.acl.flatMap(fieldsOf)];
    this.#servers = new ServerAddresses(settings, context);
  }

  /** When the server stopped answering requests; undefined if all have been answered. */
  get silentSince(): number | undefined {
    const [oldest] = this.#open;
    return oldest && Math.max(oldest.sentAt, this.heardAt);
  }

  /** How many addresses the connect string is known to resolve to. */
  get addresses(): number {
    return this.#servers.size;
  }

  /** Connects, and reconnects automatically until `close`. */
  connect(): void {
    void this.#stayConnected();
  }

  /** @param data the node's content; default: the creating instance */
  create(path: string, kind: NodeKind, data = this.#content): Promise<Creation> {
    // The response header contains the write's own zxid, because the header is created where writes are applied one by
    // one (3.8: `FinalRequestProcessor`, called by `CommitProcessor.processWrite`).
    const request = [CREATE, path, data, ...this.#acl, FLAGS[kind]];
    return this.#request(request, (answer, createdAt) => ({ path: answer.text(), createdAt }));
  }

  /**
   * Lists the names of the child nodes; empty if the node does not exist.
   *
   * @param onChange called once when a child is created or removed. It is dropped when the connection is lost, and not
   * registered if the node does not exist.
   */
  children(path: string, onChange?: () => void): Promise<readonly string[]> {
    const read = (answer: JuteReader) => {
      if (onChange) this.#listen(path, onChange);
      return answer.texts();
    };
    return this.#request<readonly string[]>([GET_CHILDREN, path, onChange !== undefined], read, []);
  }

  /** Resolves to null if the node does not exist. */
  stat(path: string): Promise<NodeStat | null> {
    return this.#request<NodeStat | null>([EXISTS, path, false], statIn, null);
  }

  /**
   * Reads this server's copy of the node; null if it does not exist.
   *
   * @param onChange called once when the node is changed or removed. It is dropped when the connection is lost, and not
   * registered if the node does not exist.
   */
  read(path: string, onChange?: () => void): Promise<NodeValue | null> {
    const read = (answer: JuteReader) => {
      if (onChange) this.#listen(path, onChange);
      return { data: answer.bytes(), ...statIn(answer) };
    };
    return this.#request<NodeValue | null>([GET_DATA, path, onChange !== undefined], read, null);
  }

  /**
   * Unregisters an `onChange` passed to {@link read} or {@link children}, because a node may outlive the requests that
   * watch it.
   */
  unwatch(path: string, onChange: () => void): void {
    this.#watches.get(path)?.delete(onChange);
  }

  /**
   * Writes to the node, which triggers the watches on it.
   *
   * @param data default: the writing instance
   * @param version if given, the write fails with `changed` if the node has a different version
   * @returns the time of the write by the leader's clock; null if the node does not exist
   */
  write(path: string, data = this.#content, version = ANY_VERSION): Promise<number | null> {
    // The leader assigns the time of a transaction, and each server that applies it keeps that time (3.4 and 3.8: the
    // `TxnHeader` from `PrepRequestProcessor`).
    const read = (answer: JuteReader) => statIn(answer).changedAt;
    return this.#request<number | null>([SET_DATA, path, data, version], read, null);
  }

  /** Resolves to whether the node existed. */
  remove(path: string): Promise<boolean> {
    return this.#request([DELETE, path, ANY_VERSION], () => true, false);
  }

  /** Drops the connection or the current attempt, and tries the next server with the same session. */
  reconnect(): void {
    this.#socket?.destroy(this.#isConnected ? undefined : new Error('it did not respond in time'));
  }

  /** Requests the end of the session, which removes all its nodes. Never settles if no server responds. */
  async close(): Promise<void> {
    const closed = this.#request([CLOSE_SESSION], () => undefined).catch(() => undefined);
    this.#isOver = true;
    await closed;
  }

  /** Closes all sockets and clears all timers without notifying the server. */
  abandon(): void {
    this.#isOver = true;
    this.#ending.abort();
    this.#socket?.destroy();
  }

  /** Connects to one server after another. Moves on to the next one immediately, but pauses between rounds. */
  async #stayConnected(): Promise<void> {
    const servers = this.#servers;
    const start = startTimeoutOf(this.settings);
    let rest: ServerAddress[] = [];
    let last: ServerAddress | undefined;
    let wasShort = false;
    for (let rounds = 0; ;) {
      if (rest.length === 0) {
        rest = await servers.round(last, start * LOOKUPS);
        rounds += 1;
      }
      const server = rest.shift();
      last = server ?? last;
      this.#allow((start * FIRST_ROUND * 2 ** Math.max(rounds - 1, 0)) / servers.size);
      const ended = server && !this.#isOver ? await this.#connection(server) : undefined;
      this.tryUntil = undefined;
      if (this.#isOver) return;
      const isMisconfigured = ended?.kind === 'misconfigured';
      let isFresh = false;
      if (isMisconfigured) this.#refusals += 1;
      else if (ended) {
        rounds = 0;
        const isShort = this.context.clock.now() - this.#greetedAt < SHORT_CONNECTION_MS;
        this.#refusals = isShort && !this.#isServed ? this.#refusals + 1 : 0;
        // Resolve the names again, since their addresses may have changed. A second short connection in a row counts as
        // a failed attempt instead; otherwise, servers that drop every connection would be retried without a pause.
        isFresh = !isShort || !wasShort;
        wasShort = isShort;
      }
      // If our own options are invalid, trying other servers won't help.
      if (isFresh || isMisconfigured) rest = [];
      const isRoundOver = rest.length === 0 && !isFresh;
      this.listener.onDisconnected(ended ? (this.#refusal ?? ended) : servers.failure());
      if (isRoundOver) await pause(this.context.clock, this.#pause(), this.#ending.signal, true);
    }
  }

  /**
   * Resolves when the connection is closed, or our options prevent it: to the reason, or to undefined if no session was
   * established.
   */
  #connection(server: ServerAddress): Promise<ZooKeeperFailure | undefined> {
    return new Promise((resolve) => {
      try {
        this.#dial(server, resolve);
      } catch (error) {
        resolve(tlsFault(this.settings.tls ?? {}, error));
      }
    });
  }

  #dial(server: ServerAddress, onClose: (lost: ZooKeeperFailure | undefined) => void): void {
    const { tls } = this.settings;
    const { host, address, port } = server;
    const frames = new FrameSplitter();
    let trouble: Error | undefined;
    this.#refusal = undefined;
    this.#isServed = false;
    const socket = tls
      ? connectSecurely({ servername: isIP(host) ? '' : host, ...tls, host: address, port })
      : connect({ host: address, port });
    this.#socket = socket
      .setNoDelay()
      // With TLS, wait for the certificate check. Anything written earlier might reach an untrusted server.
      .once(tls ? 'secureConnect' : 'connect', () => {
        this.#greet(socket);
      })
      .on('data', (chunk: Buffer) => {
        try {
          for (const frame of frames.push(chunk)) if (!socket.destroyed) this.#onFrame(new JuteReader(frame));
        } catch (error) {
          socket.destroy(error as Error);
        }
      })
      // A server that has ended its side of the connection no longer reads ours.
      .once('end', () => socket.destroy())
      .on('error', (error: Error) => (trouble = error))
      .once('close', () => {
        const lost = new ZooKeeperFailure('unanswered', 'The connection to ZooKeeper was lost.', { cause: trouble });
        if (!this.#isConnected)
          this.#servers.failed(server, trouble ?? new Error('it closed the connection without responding'));
        // Notify the session before the requests fail.
        onClose(this.#isConnected ? lost : undefined);
        this.#isConnected = false;
        this.#unsent = [];
        this.#watches.clear();
        for (const { fail } of this.#open.splice(0)) fail(lost);
      });
  }

  /** Limits the current connection attempt, or the lookups before it, to `delay` ms. */
  #allow(delay: number): void {
    const timeout = this.sessionTimeout || this.settings.sessionTimeout;
    this.tryUntil = this.context.clock.now() + Math.min(delay, CONNECT_TIMEOUT_MS, timeout / 4);
  }

  #greet(socket: Socket): void {
    const { sessionTimeout, auth } = this.settings;
    socket.write(encode([PROTOCOL, this.#zxid, sessionTimeout, this.sessionId, this.#password, READ_ONLY]));
    if (auth) socket.write(encode([AUTH_XID, AUTH, 0, auth.scheme, Buffer.from(auth.credentials)]));
  }

  #onFrame(answer: JuteReader): void {
    if (!this.#isConnected) {
      this.#onGreeting(answer);
      return;
    }
    const [xid, zxid, code] = [answer.int(), answer.long(), answer.int()];
    this.heardAt = this.context.clock.now();
    if (xid === NOTIFICATION_XID) {
      this.#onChange(answer);
    } else if (xid === AUTH_XID) {
      if (code !== 0) this.listener.onRefused(new ZooKeeperFailure('refused', failureOf(code).message));
    } else {
      const [request] = this.#open;
      if (request?.xid !== xid) throw new Error(`ZooKeeper responded to request ${xid} instead of ${request?.xid}.`);
      if (SESSION_GONE.includes(code))
        throw new Error(`The ZooKeeper session no longer uses this connection (${code}).`);
      if (zxid > 0n) this.#zxid = zxid;
      const failure = code === 0 ? undefined : this.#failureOf(code, request.fields);
      if (failure) request.fail(failure);
      else request.onAnswer(answer, zxid);
      this.#open.shift();
      this.#refusal = failure?.kind === 'refused' ? failure : undefined;
      this.#isServed ||= this.#refusal === undefined;
      if (failure && CLOSES_SESSION.includes(code)) this.listener.onRefused(failure);
    }
  }

  #onGreeting(answer: JuteReader): void {
    answer.int();
    const timeout = answer.int();
    if (timeout <= 0) {
      this.listener.onExpired();
      return;
    }
    this.sessionTimeout = timeout;
    this.sessionId = BigInt.asUintN(64, answer.long());
    this.#password = Buffer.from(answer.bytes());
    this.heardAt = this.context.clock.now();
    this.#greetedAt = this.heardAt;
    this.#isConnected = true;
    this.tryUntil = undefined;
    this.#servers.forgetFailures();
    this.listener.onConnected();
  }

  #onChange(event: JuteReader): void {
    // Skip the event type and the session state.
    event.long();
    const path = event.text();
    const listeners = this.#watches.get(path) ?? [];
    this.#watches.delete(path);
    for (const listener of listeners) listener();
  }

  /**
   * The delay before the next round, in ms. It increases while servers reject us, but stays short while they are down,
   * because the session must reconnect to one of them in time.
   */
  #pause(): number {
    const { random } = this.context;
    if (this.#refusals < 2) return random.fraction() * MAX_ROUND_DELAY_MS;
    const most = Math.min(REFUSED.most, (this.sessionTimeout || this.settings.sessionTimeout) / 4);
    return backOff(random, this.#refusals - 2, { ...REFUSED, most });
  }

  /** @param missing the result if the node does not exist; by default, the request fails */
  #request<T>(fields: readonly Field[], read: (answer: JuteReader, zxid: bigint) => T, missing?: T): Promise<T> {
    return new Promise((resolve, reject) => {
      if (!this.#isConnected || this.#isOver) {
        reject(noConnection());
        return;
      }
      const isWrite = WRITES.includes(fields[0]);
      const xid = (this.#xid = this.#xid === LAST_XID ? 1 : this.#xid + 1);
      const sentAt = this.context.clock.now();
      const onAnswer = (answer: JuteReader, zxid: bigint) => {
        const value = read(answer, zxid);
        if (isWrite) this.listener.onWritten(sentAt);
        resolve(value);
      };
      const fail = (failure: ZooKeeperFailure) => {
        if (failure.kind === 'no-node' && missing !== undefined) resolve(missing);
        else reject(failure);
      };
      this.#open.push({ xid, fields, sentAt, onAnswer, fail });
      if (this.#unsent.push(encode([xid, ...fields])) === 1) nextTick(this.#flush);
      this.listener.onSent(sentAt, isWrite);
    });
  }

  /** Builds a request's failure. For an ACL refusal, it includes the node, permission, and user. */
  #failureOf(code: number, [operation, path]: readonly Field[]): ZooKeeperFailure {
    const right = RIGHTS[operation as number];
    if (right === undefined) return failureOf(code);
    const { auth } = this.settings;
    // Use only the part before the first colon: the rest is the password.
    const [, user] = (auth?.scheme === 'digest' && /^([^:]+):/.exec(auth.credentials)) || [];
    const whom = user === undefined ? `the "${auth?.scheme ?? ''}" identity` : `user "${user}"`;
    const node = right.isOfParent ? String(path).slice(0, String(path).lastIndexOf('/')) || '/' : String(path);
    return failureOf(
      code,
      `the ACL of node "${node}" does not grant permission ${right.permission} to ${auth ? whom : 'clients without "auth"'}. ` +
        'Grant cdrw there, or check "auth" and the path in "connectString"',
    );
  }

  readonly #flush = (): void => {
    if (this.#unsent.length > 0) this.#socket?.write(Buffer.concat(this.#unsent));
    this.#unsent = [];
  };

  #listen(path: string, onChange: () => void): void {
    const listeners = this.#watches.get(path);
    if (listeners) listeners.add(onChange);
    else this.#watches.set(path, new Set([onChange]));
  }
}

/**
 * Reads a `Stat`: czxid, mzxid, ctime, mtime, version, cversion and aversion, and ephemeralOwner. The rest isn't
 * needed.
 */
function statIn(answer: JuteReader): Omit<NodeValue, 'data'> & { readonly changedAt: number } {
  const [createdAt, , , changedAt] = [answer.long(), answer.long(), answer.long(), answer.long()];
  const [version] = [answer.int(), answer.long()];
  return { createdAt, changedAt: Number(changedAt), version, owner: BigInt.asUintN(64, answer.long()) };
}

function fieldsOf({ permissions, scheme, id }: ZooKeeperAcl): readonly Field[] {
  return [Array.from(permissions, (letter) => PERMISSIONS[letter] ?? 0).reduce((all, bit) => all | bit), scheme, id];
}
