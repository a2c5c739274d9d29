import { connect, isIP, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import type { BackendContext } from '../../api/lock-provider.js';
import { nextTick } from '../../core/toolkit/real-timers.js';
import { backOff, pause } from '../../core/toolkit/timing.js';
import { closesSession, failureOf, isSessionGone, kindOf, NO_NODE } from './answer-codes.js';
import { FrameSplitter } from './frame-splitter.js';
import { encode, type Field, JuteReader } from './jute.js';
import { contentFor } from './node-content.js';
import { type ServerAddress, ServerAddresses } from './server-addresses.js';
import { tlsFault } from './tls-fault.js';
import {
  type ClientListener,
  type Creation,
  type NodeKind,
  type NodeStat,
  type NodeValue,
  noConnection,
  type ZooKeeperClient,
  ZooKeeperFailure,
} from './zookeeper-client.js';
import { startTimeoutOf, type ZooKeeperAcl, type ZooKeeperSettings } from './zookeeper-options.js';

/** Operations (`ZooDefs.OpCode`). */
const CREATE = 1;
const DELETE = 2;
const EXISTS = 3;
const GET_DATA = 4;
const SET_DATA = 5;
const GET_CHILDREN = 8;
const AUTH = 100;
const CLOSE_SESSION = -11;

/** The permission that a request needs: of its node, or of the node above it. */
const RIGHTS: Readonly<Record<number, { readonly permission: string; readonly isOfParent: boolean }>> = {
  [CREATE]: { permission: 'c (create)', isOfParent: true },
  [DELETE]: { permission: 'd (delete)', isOfParent: true },
  [GET_DATA]: { permission: 'r (read)', isOfParent: false },
  [GET_CHILDREN]: { permission: 'r (read)', isOfParent: false },
  [SET_DATA]: { permission: 'w (write)', isOfParent: false },
};

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

/** The longest pause before the servers are tried once more, in ms. */
const PAUSE = 250;
/** The pauses while connections are refused, in ms; at most a quarter of the session. */
const REFUSED = { first: 250, most: 5_000 };
/** A connection that ends earlier than after so many ms has helped nobody much. */
const SHORT = 1_000;
/** How long a server may take to accept a connection and greet us, in ms: one of several may hang. At most a quarter of the session. */
const GREETING_TIMEOUT = 2_000;
/**
 * The part of the start in which the first round is over, though all servers hang but the last. Each later round has twice as long, because
 * all of them may be slow.
 */
const FIRST_ROUND = 3 / 4;
/** The part of the start after which a round begins without the names that are not looked up yet. */
const LOOKUPS = 1 / 5;

/** A request that was sent and is not answered. */
interface OpenRequest {
  readonly xid: number;
  readonly asked: readonly Field[];
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
  tryUntil: number | undefined;
  #password = Buffer.alloc(16);
  /** The latest change that this session has seen. A server that is behind it refuses the session, so what is read never goes back. */
  #zxid = 0n;
  /** The number of the last request. */
  #xid: number;
  readonly #servers: ServerAddresses;
  #socket: Socket | undefined;
  #isConnected = false;
  #isOver = false;
  readonly #ending = new AbortController();
  #greetedAt = 0;
  /** How many connections in a row were refused, or could not even be tried. */
  #refusals = 0;
  /** The last one could not even be tried, because of our options. */
  #misconfigured: ZooKeeperFailure | undefined;
  /** The latest answer on this connection was this refusal. */
  #refusal: ZooKeeperFailure | undefined;
  /** A request on this connection was answered by anything else. */
  #isServed = false;
  /** In the order in which they were sent, in which they are also answered. */
  readonly #open: OpenRequest[] = [];
  /** Operations of this tick: one packet is cheaper than several. */
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
    this.#servers = new ServerAddresses(settings, context);
  }

  get silentSince(): number | undefined {
    const [oldest] = this.#open;
    return oldest && Math.max(oldest.sentAt, this.heardAt);
  }

  get addresses(): number {
    return this.#servers.size;
  }

  connect(): void {
    void this.#stayConnected();
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

  write(path: string, data = this.#content, version = ANY_VERSION): Promise<number> {
    // The leader dates the transaction, and each server that executes it keeps that date (3.4 and 3.8: the `TxnHeader` that
    // `PrepRequestProcessor` makes).
    return this.#write([SET_DATA, path, data, version], (answer) => statIn(answer).changedAt);
  }

  remove(path: string): Promise<void> {
    return this.#write([DELETE, path, ANY_VERSION], () => undefined);
  }

  reconnect(): void {
    this.#socket?.destroy(this.#isConnected ? undefined : new Error('it has not answered in time'));
  }

  async close(): Promise<void> {
    const closed = this.#ask([CLOSE_SESSION], () => undefined).catch(() => undefined);
    this.#isOver = true;
    await closed;
  }

  abandon(): void {
    this.#isOver = true;
    this.#ending.abort();
    this.#socket?.destroy();
  }

  /** Goes from server to server: to the next one immediately, and after a pause when a round of all of them is over. */
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
      const lost = server && !this.#isOver ? await this.#connection(server) : undefined;
      this.tryUntil = undefined;
      if (this.#isOver) return;
      let isFresh = false;
      if (lost) {
        rounds = 0;
        const isShort = this.context.clock.now() - this.#greetedAt < SHORT;
        this.#refusals = isShort && !this.#isServed ? this.#refusals + 1 : 0;
        // The names may have other addresses by now. A second short connection counts as a try in vain, or servers that end each
        // connection would be asked without a pause.
        isFresh = !isShort || !wasShort;
        wasShort = isShort;
      }
      // If it is our options that cannot be used, no other server makes a difference.
      if (isFresh || this.#misconfigured) rest = [];
      const isRoundOver = rest.length === 0 && !isFresh;
      this.listener.onDisconnected(this.#misconfigured ?? (lost ? (this.#refusal ?? lost) : servers.failure()));
      if (isRoundOver) await pause(this.context.clock, this.#pause(), this.#ending.signal, true);
    }
  }

  /** Resolves when the connection is closed: to its failure, or to nothing if the server has never greeted us. */
  #connection(server: ServerAddress): Promise<ZooKeeperFailure | undefined> {
    return new Promise((resolve) => {
      this.#misconfigured = undefined;
      try {
        this.#dial(server, resolve);
      } catch (error) {
        this.#misconfigured = tlsFault(this.settings.tls ?? {}, error);
        this.#refusals += 1;
        resolve(undefined);
      }
    });
  }

  #dial(server: ServerAddress, onClose: (lost: ZooKeeperFailure | undefined) => void): void {
    const { tls } = this.settings;
    const { host, address, port } = server;
    const frames = new FrameSplitter();
    let trouble: Error | undefined;
    const socket = tls
      ? connectSecurely({ servername: isIP(host) ? '' : host, ...tls, host: address, port })
      : connect({ host: address, port });
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
        const lost = new ZooKeeperFailure('unanswered', 'The connection to ZooKeeper is lost.', { cause: trouble });
        if (!this.#isConnected)
          this.#servers.failed(server, trouble ?? new Error('it has closed the connection without an answer'));
        // In this order: the session knows of it before those whose requests fail.
        onClose(this.#isConnected ? lost : undefined);
        this.#isConnected = false;
        this.#unsent = [];
        this.#watches.clear();
        for (const { fail } of this.#open.splice(0)) fail(lost);
      });
  }

  /** The current try, or the lookups before it, may take so many ms. */
  #allow(delay: number): void {
    const timeout = this.sessionTimeout || this.settings.sessionTimeout;
    this.tryUntil = this.context.clock.now() + Math.min(delay, GREETING_TIMEOUT, timeout / 4);
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
      if (code !== 0) this.#giveUp(new ZooKeeperFailure('refused', failureOf(code).message));
    } else {
      const [request] = this.#open;
      if (request?.xid !== xid) throw new Error(`ZooKeeper answers request ${xid} instead of ${request?.xid}.`);
      if (isSessionGone(code)) throw new Error(`The session of ZooKeeper is not on this connection (${code}).`);
      if (zxid > 0n) this.#zxid = zxid;
      request.onAnswer(code, answer, zxid);
      this.#open.shift();
      this.#refusal = code !== 0 && kindOf(code) === 'refused' ? this.#failureOf(code, request.asked) : undefined;
      this.#isServed ||= this.#refusal === undefined;
      if (this.#refusal && closesSession(code)) this.#giveUp(this.#refusal);
    }
  }

  #giveUp(cause: ZooKeeperFailure): void {
    this.abandon();
    this.listener.onRefused(cause);
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
    this.#isServed = false;
    this.#refusal = undefined;
    this.tryUntil = undefined;
    this.#servers.forgetFailures();
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

  /** In ms. It grows while servers refuse us, and stays short for servers that are down: the session has to be on one of them in time. */
  #pause(): number {
    const { random } = this.context;
    if (this.#refusals < 2) return random.fraction() * PAUSE;
    const most = Math.min(REFUSED.most, (this.sessionTimeout || this.settings.sessionTimeout) / 4);
    return backOff(random, this.#refusals - 2, { ...REFUSED, most });
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
        else reject(this.#failureOf(code, request));
      };
      this.#open.push({ xid, asked: request, sentAt, onAnswer, fail: reject });
      if (this.#unsent.push(encode([xid, ...request])) === 1) nextTick(this.#flush);
      this.listener.onSent(sentAt, isWrite);
    });
  }

  /** The failure of a request, for which an operator learns what the ACL lacks: of which node, which right, and for whom. */
  #failureOf(code: number, [operation, path]: readonly Field[]): ZooKeeperFailure {
    const right = RIGHTS[operation as number];
    if (right === undefined) return failureOf(code);
    const { auth } = this.settings;
    // Only before the first colon, because the rest is the password.
    const [, user] = (auth?.scheme === 'digest' && /^([^:]+):/.exec(auth.credentials)) || [];
    const whom = user === undefined ? `the identity of the scheme "${auth?.scheme ?? ''}"` : `the user "${user}"`;
    const node = right.isOfParent ? String(path).slice(0, String(path).lastIndexOf('/')) || '/' : String(path);
    return failureOf(
      code,
      `the ACL of the node "${node}" does not give the permission ${right.permission} to ${auth ? whom : 'a client without "auth"'}. ` +
        'Give it all of cdrw there, or check "auth" and the path of "connectString"',
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

/** `Stat`, of which the rest is not needed: czxid, mzxid, ctime, mtime, version, cversion and aversion, ephemeralOwner, … */
function statIn(answer: JuteReader): Omit<NodeValue, 'data'> & { readonly changedAt: number } {
  const [createdAt, , , changedAt] = [answer.long(), answer.long(), answer.long(), answer.long()];
  const [version] = [answer.int(), answer.long()];
  return { createdAt, changedAt: Number(changedAt), version, owner: BigInt.asUintN(64, answer.long()) };
}

function fieldsOf({ permissions, scheme, id }: ZooKeeperAcl): readonly Field[] {
  return [Array.from(permissions, (letter) => PERMISSIONS[letter] ?? 0).reduce((all, bit) => all | bit), scheme, id];
}
