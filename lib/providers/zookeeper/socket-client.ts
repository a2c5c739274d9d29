import { connect, isIP, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import type { Timer } from '../../api/clock.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { nextTick } from '../../core/toolkit/real-timers.js';
import { FrameSplitter } from './frame-splitter.js';
import { encode, type Field, JuteReader } from './jute.js';
import { contentFor } from './node-content.js';
import {
  type ClientListener,
  type Creation,
  type FailureKind,
  type NodeKind,
  type NodeStat,
  type NodeValue,
  noConnection,
  type ZooKeeperClient,
  ZooKeeperFailure,
} from './zookeeper-client.js';
import type { Server, ZooKeeperAcl, ZooKeeperSettings } from './zookeeper-options.js';

/** What is asked (`ZooDefs.OpCode`). */
const CREATE = 1;
const DELETE = 2;
const EXISTS = 3;
const GET_DATA = 4;
const SET_DATA = 5;
const GET_CHILDREN = 8;
const AUTH = 100;
const CLOSE_SESSION = -11;

const PROTOCOL = 0;
/** A server without a quorum is of no use. */
const READ_ONLY = false;
const ANY_VERSION = -1;
/** 1: ephemeral, 2: sequential (`CreateMode`). */
const FLAGS: Record<NodeKind, number> = { persistent: 0, ephemeral: 1, 'ephemeral-sequential': 3 };
const PERMISSIONS: Record<string, number> = { r: 1, w: 2, c: 4, d: 8, a: 16 };

/** Requests are numbered from 1. At 300 locks a second the 31 bits end after a month. */
const LAST_XID = 2 ** 31 - 1;
const NOTIFICATION_XID = -1;
const AUTH_XID = -4;

/** `KeeperException.Code`. Others are refusals as well. */
const NO_NODE = -101;
const FAILURES: Record<number, readonly [kind: FailureKind, name: string]> = {
  [NO_NODE]: ['no-node', 'NO_NODE'],
  [-103]: ['changed', 'BAD_VERSION'],
  [-110]: ['exists', 'NODE_EXISTS'],
  [-111]: ['not-empty', 'NOT_EMPTY'],
  [-102]: ['refused', 'NO_AUTH'],
  [-114]: ['refused', 'INVALID_ACL'],
  [-125]: ['refused', 'QUOTA_EXCEEDED'],
  [-4]: ['unanswered', 'CONNECTION_LOSS'],
  [-7]: ['unanswered', 'OPERATION_TIMEOUT'],
  [-122]: ['unanswered', 'REQUEST_TIMEOUT'],
  [-127]: ['unanswered', 'THROTTLED_OP'],
};
/** SESSION_EXPIRED and SESSION_MOVED. The next greeting tells which. */
const GONE = [-112, -118];

/** The longest pause before the servers are tried once more, in ms. */
const PAUSE = 250;

/** A request that was sent and is not answered. */
interface OpenRequest {
  readonly xid: number;
  readonly sentAt: number;
  readonly onAnswer: (code: number, answer: JuteReader, zxid: bigint) => void;
  readonly fail: (failure: ZooKeeperFailure) => void;
}

/**
 * Speaks the protocol of ZooKeeper 3.4 and later. It repeats no request and sets no watch again: after a reconnect its user looks again. It
 * sends no pings, and ends no silent connection: the {@link Session} asks often enough, and calls `reconnect`.
 */
export class SocketClient implements ZooKeeperClient {
  sessionId = 0n;
  sessionTimeout = 0;
  heardAt = 0;
  #password = Buffer.alloc(16);
  /** The latest change that this session has seen. A server that is behind it refuses the session, so what is read never goes back. */
  #zxid = 0n;
  /** The number of the last request. */
  #xid: number;
  readonly #servers: readonly Server[];
  #next = 0;
  /** How many servers were tried since the last answer. */
  #tried = 0;
  #retry: Timer | undefined;
  #socket: Socket | undefined;
  #isConnected = false;
  #isOver = false;
  /** In the order in which they were sent, in which they are also answered. */
  readonly #open: OpenRequest[] = [];
  /** What was asked in this tick: one packet is cheaper than several. */
  #unsent: Buffer[] = [];
  /** By path. None is watched both for its content and for its children: locks are a level below their folders. */
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
    // So that processes spread over the servers, also when one of them goes.
    this.#servers = settings.servers
      .map((server) => ({ server, at: context.random.fraction() }))
      .sort((one, other) => one.at - other.at)
      .map(({ server }) => server);
  }

  get silentSince(): number | undefined {
    const [oldest] = this.#open;
    return oldest && Math.max(oldest.sentAt, this.heardAt);
  }

  connect(): void {
    const { tls } = this.settings;
    const server = this.#servers[this.#next % this.#servers.length] as Server;
    this.#next += 1;
    this.#tried += 1;
    const frames = new FrameSplitter();
    let trouble: Error | undefined;
    const socket = tls
      ? connectSecurely({ servername: isIP(server.host) ? '' : server.host, ...tls, ...server })
      : connect(server);
    this.#socket = socket
      .setNoDelay()
      // Not earlier: what is written before the certificate is checked may reach a server that nobody trusts.
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
      // A server that has ended the connection reads no more.
      .once('end', () => socket.destroy())
      .on('error', (error: Error) => (trouble = error))
      .once('close', () => {
        this.#onClose(trouble);
      });
  }

  create(path: string, kind: NodeKind, data = this.#content): Promise<Creation> {
    // The answer to a write contains the zxid of that write: it is made where writes are applied, one after the other (3.8:
    // `FinalRequestProcessor`, called by `CommitProcessor.processWrite`).
    const request = [CREATE, path, data, ...this.#acl, FLAGS[kind]];
    return this.#write(request, (answer, createdAt) => ({ path: answer.text(), createdAt }));
  }

  children(path: string, onChange?: () => void): Promise<readonly string[]> {
    return this.#ask([GET_CHILDREN, path, onChange !== undefined], (answer) => {
      if (onChange) this.#listen(path, onChange);
      return answer.texts();
    });
  }

  stat(path: string): Promise<NodeStat | null> {
    return this.#ask<NodeStat | null>([EXISTS, path, false], statIn, null);
  }

  read(path: string, onChange?: () => void): Promise<NodeValue | null> {
    const read = (answer: JuteReader) => {
      if (onChange) this.#listen(path, onChange);
      return { data: answer.bytes(), ...statIn(answer) };
    };
    return this.#ask<NodeValue | null>([GET_DATA, path, onChange !== undefined], read, null);
  }

  unwatch(path: string, onChange: () => void): void {
    this.#watches.get(path)?.delete(onChange);
  }

  write(path: string, data = this.#content, version = ANY_VERSION): Promise<void> {
    return this.#write([SET_DATA, path, data, version], () => undefined);
  }

  remove(path: string): Promise<void> {
    return this.#write([DELETE, path, ANY_VERSION], () => undefined);
  }

  reconnect(): void {
    this.#socket?.destroy();
  }

  async close(): Promise<void> {
    const closed = this.#ask([CLOSE_SESSION], () => undefined).catch(() => undefined);
    this.#isOver = true;
    await closed;
  }

  abandon(): void {
    this.#isOver = true;
    if (this.#retry) this.context.clock.clearTimer(this.#retry);
    this.#socket?.destroy();
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
    this.#tried = 0;
    this.heardAt = this.context.clock.now();
    if (xid === NOTIFICATION_XID) {
      this.#onChange(answer);
    } else if (xid === AUTH_XID) {
      if (code === 0) return;
      this.listener.onRefused(new Error('ZooKeeper does not accept the scheme or the credentials of "auth".'));
    } else {
      const [request] = this.#open;
      if (request?.xid !== xid) throw new Error(`ZooKeeper answers request ${xid} instead of ${request?.xid}.`);
      if (GONE.includes(code)) throw new Error(`The session of ZooKeeper is not on this connection (${code}).`);
      if (zxid > 0n) this.#zxid = zxid;
      request.onAnswer(code, answer, zxid);
      this.#open.shift();
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
    this.#isConnected = true;
    this.listener.onConnected();
  }

  #onChange(event: JuteReader): void {
    // Of what type, and in what state of the session.
    event.long();
    const path = event.text();
    const listeners = this.#watches.get(path) ?? [];
    this.#watches.delete(path);
    for (const listener of listeners) listener();
  }

  #onClose(trouble: Error | undefined): void {
    this.#isConnected = false;
    this.#unsent = [];
    this.#watches.clear();
    const failure = new ZooKeeperFailure('unanswered', 'The connection to ZooKeeper is lost.', { cause: trouble });
    for (const { fail } of this.#open.splice(0)) fail(failure);
    if (this.#isOver) return;
    const { clock, random } = this.context;
    const isRoundOver = this.#tried > 0 && this.#tried % this.#servers.length === 0;
    const pause = isRoundOver ? random.fraction() * PAUSE : 0;
    this.#retry = clock.setTimer(() => {
      this.connect();
    }, pause);
    this.listener.onDisconnected(failure);
  }

  #write<T>(request: readonly Field[], read: (answer: JuteReader, zxid: bigint) => T): Promise<T> {
    return this.#ask(request, read, undefined, true);
  }

  /** @param missing the answer if the node does not exist; default: a failure */
  #ask<T>(
    request: readonly Field[],
    read: (answer: JuteReader, zxid: bigint) => T,
    missing?: T,
    isWrite = false,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      if (!this.#isConnected || this.#isOver) {
        reject(noConnection());
        return;
      }
      const xid = (this.#xid = this.#xid === LAST_XID ? 1 : this.#xid + 1);
      const sentAt = this.context.clock.now();
      const onAnswer = (code: number, answer: JuteReader, zxid: bigint) => {
        if (code === 0) {
          const value = read(answer, zxid);
          if (isWrite) this.listener.onWritten(sentAt);
          resolve(value);
        } else if (code === NO_NODE && missing !== undefined) resolve(missing);
        else reject(failureOf(code));
      };
      this.#open.push({ xid, sentAt, onAnswer, fail: reject });
      if (this.#unsent.push(encode([xid, ...request])) === 1) nextTick(this.#flush);
      this.listener.onSent(sentAt, isWrite);
    });
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

function failureOf(code: number): ZooKeeperFailure {
  const [kind, name] = FAILURES[code] ?? ['refused', 'an error'];
  return new ZooKeeperFailure(kind, `ZooKeeper answers ${name} (${code}).`);
}

/** `Stat`, of which the rest is not needed: czxid, mzxid, ctime, mtime, version, cversion and aversion, ephemeralOwner, … */
function statIn(answer: JuteReader): Omit<NodeValue, 'data'> {
  const [createdAt] = [answer.long(), answer.long(), answer.long(), answer.long()];
  const [version] = [answer.int(), answer.long()];
  return { createdAt, version, owner: BigInt.asUintN(64, answer.long()) };
}

function fieldsOf({ permissions, scheme, id }: ZooKeeperAcl): readonly Field[] {
  return [Array.from(permissions, (letter) => PERMISSIONS[letter] ?? 0).reduce((all, bit) => all | bit), scheme, id];
}
