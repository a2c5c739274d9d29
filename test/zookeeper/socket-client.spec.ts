import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../lib/api/clock.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { encode, type Field, JuteReader } from '../../lib/providers/zookeeper/jute.js';
import { SocketClient } from '../../lib/providers/zookeeper/socket-client.js';
import { isFailure } from '../../lib/providers/zookeeper/zookeeper-failure.js';
import { readOptions, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import { contextFor } from '../backend-context.js';
import { until } from './seam.js';
import { jest } from '@jest/globals';
import fc from 'fast-check';
import { FrameSplitter } from '../../lib/providers/zookeeper/frame-splitter.js';

const PASSWORD = Buffer.from('0123456789abcdef');
const SESSION = 42n;
const greeting = (timeout = 4_000) => encode([0, timeout, SESSION, PASSWORD, false]);
const reply = (xid: number, code = 0, ...fields: Field[]) => encode([xid, 7n, code, ...fields]);
const changed = (path: string) => encode([-1, -1n, 0, 3, 3, path]);
const STAT = [5n, 6n, 0n, 0n, 9, 0, 0, SESSION, 0, 0, 5n];
const NO_NODE = -101;
const SESSION_MOVED = -118;

/** One client message, without its length. */
class Message {
  readonly #reader: JuteReader;
  readonly xid: number;
  readonly type: number;

  constructor(readonly content: Buffer) {
    this.#reader = new JuteReader(content);
    this.xid = this.#reader.int();
    this.type = this.#reader.int();
  }

  path(): string {
    return this.#reader.text();
  }
}

/** Sends replies that a real server sends rarely, or only in part. */
class Script {
  /** The first message of each connection. */
  readonly greetings: JuteReader[] = [];
  readonly messages: Message[] = [];
  readonly sockets: Socket[] = [];
  onGreeting: (socket: Socket, count: number) => void = (socket) => socket.write(greeting());
  onMessage: (message: Message, socket: Socket) => void = () => undefined;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((socket) => {
      this.sockets.push(socket);
      let isGreeted = false;
      let rest: Buffer = Buffer.alloc(0);
      socket.on('error', () => undefined);
      socket.on('data', (chunk: Buffer) => {
        rest = Buffer.concat([rest, chunk]);
        while (rest.length >= 4 && rest.length >= 4 + rest.readInt32BE()) {
          const content = rest.subarray(4, 4 + rest.readInt32BE());
          rest = rest.subarray(4 + content.length);
          if (isGreeted) {
            const message = new Message(content);
            this.messages.push(message);
            this.onMessage(message, socket);
          } else {
            isGreeted = true;
            this.greetings.push(new JuteReader(content));
            this.onGreeting(socket, this.greetings.length);
          }
        }
      });
    });
  }

  static async start(): Promise<Script> {
    const script = new Script();
    script.#server.listen(0, '127.0.0.1');
    await once(script.#server, 'listening');
    return script;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

describe('the ZooKeeper client', () => {
  let script: Script;
  const clients: SocketClient[] = [];
  let reports: string[];
  /** Why the client was refused or disconnected. */
  let causes: Error[];
  /** The delay before each reconnect, in ms. */
  let delays: number[];

  beforeEach(async () => {
    script = await Script.start();
    reports = [];
    causes = [];
    delays = [];
  });

  afterEach(async () => {
    for (const client of clients.splice(0)) client.abandon();
    await script.stop();
  });

  const make = (options: Partial<ZooKeeperLockProviderOptions> = {}, lastXid?: number): SocketClient => {
    const settings = readOptions({ connectString: script.address, ...options });
    const listener = {
      onSent: () => undefined,
      onWritten: () => reports.push('written'),
      onConnected: () => reports.push('connected'),
      onDisconnected: (cause: Error) => {
        causes.push(cause);
        reports.push('disconnected');
      },
      onExpired: () => reports.push('expired'),
      onRefused: (cause: Error) => {
        client.abandon();
        causes.push(cause);
        reports.push('refused');
      },
    };
    const random = { ...systemRandom(), fraction: () => 0.5 };
    const clock: Clock = {
      ...systemClock,
      setTimer: (callback, delay) => {
        delays.push(delay);
        return systemClock.setTimer(callback, delay);
      },
    };
    const client: SocketClient = new SocketClient(settings, contextFor([], { clock, random }), listener, lastXid);
    clients.push(client);
    return client;
  };
  const reported = (what: string, times = 1) =>
    until(() => reports.filter((each) => each === what).length >= times, `it reports "${what}"`);
  const connected = async (...args: Parameters<typeof make>): Promise<SocketClient> => {
    const client = make(...args);
    client.connect();
    await reported('connected');
    return client;
  };
  const failureOf = (request: Promise<unknown>) =>
    request.then(
      () => undefined,
      (error: unknown) => error,
    );

  it('opens a session, and resumes it on the next connection with its password and the latest change it has seen', async () => {
    script.onMessage = ({ xid }, socket) => socket.write(reply(xid));
    const client = await connected({ sessionTimeout: 6_000 });
    expect(client.sessionTimeout).toBe(4_000);
    expect(client.sessionId).toBe(SESSION);
    await client.remove('/a');
    client.reconnect();
    await reported('connected', 2);
    const read = (message: JuteReader) => [
      message.int(),
      message.long(),
      message.int(),
      message.long(),
      message.bytes(),
    ];
    const [first, second] = script.greetings;
    expect(read(first!)).toEqual([0, 0n, 6_000, 0n, Buffer.alloc(16)]);
    expect(read(second!)).toEqual([0, 7n, 6_000, SESSION, PASSWORD]);
  });

  it('reports that its session has expired if a server greets it without one', async () => {
    const client = await connected();
    script.onGreeting = (socket) => socket.write(greeting(0));
    client.reconnect();
    await reported('expired');
  });

  it('discards half a reply received before the connection broke', async () => {
    script.onGreeting = (socket, count) => {
      socket.write(greeting());
      if (count === 1) socket.end(Buffer.from([0, 0, 1, 0xf4]));
    };
    await connected();
    await reported('connected', 2);
  });

  it('assembles replies that arrive byte by byte, and splits several from one packet', async () => {
    script.onMessage = ({ xid }, socket) => {
      if (xid === 1) {
        for (const byte of reply(1, 0, ...STAT)) socket.write(Buffer.from([byte]));
      } else if (xid === 3) {
        socket.write(Buffer.concat([reply(2, NO_NODE), reply(3, 0, 2, 'a', 'b')]));
      }
    };
    const client = await connected();
    expect(await client.stat('/a')).toMatchObject({ createdAt: 5n, owner: SESSION });
    expect(await Promise.all([client.stat('/b'), client.children('/')])).toEqual([null, ['a', 'b']]);
  });

  it.each([
    ['an invalid length', () => Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')],
    ['a negative length', () => Buffer.from('ffffffff', 'hex')],
    ['a reply to another request', (xid: number) => reply(xid + 1)],
    ['a reply that ends too early', (xid: number) => reply(xid, 0, 1)],
    ['a list that is longer than its message', (xid: number) => reply(xid, 0, 2 ** 31 - 1)],
    ['an error for a session that has moved to another server', (xid: number) => reply(xid, SESSION_MOVED)],
  ])('drops the connection on %s, and opens another one', async (_, answer) => {
    script.onMessage = ({ xid }, socket) => socket.write(answer(xid));
    const client = await connected();
    const failures = await Promise.all([client.children('/a'), client.children('/b')].map(failureOf));
    expect(failures.map((failure) => isFailure(failure, 'unanswered'))).toEqual([true, true]);
    await reported('connected', 2);
    script.onMessage = ({ xid }, socket) => socket.write(reply(xid, 0, 0));
    expect(await client.children('/a')).toEqual([]);
  });

  it('never sends later what was requested without a connection', async () => {
    script.onMessage = ({ xid }, socket) => socket.write(reply(xid));
    const client = make();
    expect(isFailure(await failureOf(client.create('/a', 'persistent')), 'unanswered')).toBe(true);
    client.connect();
    await reported('connected');
    await client.remove('/b');
    expect(script.messages.map((message) => message.path())).toEqual(['/b']);
  });

  it('restarts its request numbers at 1 after 2^31 - 1', async () => {
    script.onMessage = ({ xid }, socket) => socket.write(reply(xid));
    const client = await connected({}, 2 ** 31 - 3);
    for (let time = 0; time < 4; time += 1) await client.remove('/a');
    expect(script.messages.map(({ xid }) => xid)).toEqual([2 ** 31 - 2, 2 ** 31 - 1, 1, 2]);
  });

  it('calls each watcher of a node once, and no watcher that has left or whose connection was lost', async () => {
    const calls: string[] = [];
    script.onMessage = ({ xid, type }, socket) =>
      socket.write(type === 4 ? reply(xid, 0, Buffer.from('x'), ...STAT) : reply(xid, 0, 0));
    const client = await connected();
    const leaver = () => calls.push('leaver');
    await client.read('/a', () => calls.push('one'));
    await client.read('/a', () => calls.push('other'));
    await client.read('/a', leaver);
    await client.children('/f', () => calls.push('folder'));
    client.unwatch('/a', leaver);
    const [socket] = script.sockets;
    socket!.write(Buffer.concat([changed('/a'), changed('/a'), changed('/f'), changed('/unknown')]));
    await until(() => calls.includes('folder'), 'the folder has changed');
    expect(calls).toEqual(['one', 'other', 'folder']);

    await client.read('/a', () => calls.push('lost'));
    client.reconnect();
    await reported('connected', 2);
    script.sockets[1]!.write(changed('/a'));
    await client.children('/f');
    expect(calls).toEqual(['one', 'other', 'folder']);
  });

  it('sets no watch if there is no node', async () => {
    const calls: string[] = [];
    script.onMessage = ({ xid }, socket) => socket.write(reply(xid, NO_NODE));
    const client = await connected();
    expect(await client.read('/a', () => calls.push('called'))).toBeNull();
    expect(await client.children('/a', () => calls.push('called'))).toEqual([]);
    script.sockets[0]!.write(changed('/a'));
    await client.stat('/a');
    expect(calls).toEqual([]);
  });

  it('sends its credentials on each connection, before anything else', async () => {
    const client = await connected({ auth: { credentials: 'me:secret' } });
    client.reconnect();
    await reported('connected', 2);
    expect(script.messages.map(({ xid, type }) => [xid, type])).toEqual([
      [-4, 100],
      [-4, 100],
    ]);
    expect(script.messages[0]!.content).toEqual(encode([-4, 100, 0, 'digest', Buffer.from('me:secret')]).subarray(4));
    script.sockets[1]!.write(reply(-4, -115));
    await reported('refused');
  });

  it('tries the next server after losing one, even if that one had answered', async () => {
    const other = await Script.start();
    for (const each of [script, other]) each.onMessage = ({ xid }, socket) => socket.write(reply(xid));
    const client = await connected({ connectString: `${script.address},${other.address}` });
    for (let round = 1; round <= 3; round += 1) {
      await client.remove('/a');
      client.reconnect();
      await reported('connected', round + 1);
    }
    expect([script.greetings.length, other.greetings.length]).toEqual([2, 2]);
    await other.stop();
  });

  it('tries the next server immediately, and pauses after each round in which none answers', async () => {
    script.onMessage = ({ xid }, socket) => socket.write(reply(xid));
    const client = await connected({ connectString: `${script.address},${script.address}` });
    await client.remove('/a');
    script.onGreeting = (socket) => socket.destroy();
    client.reconnect();
    await reported('disconnected', 5);
    // The fraction of 250 ms is always a half.
    expect(delays.slice(0, 2)).toEqual([125, 125]);
  });

  it.each([
    [-115, 'AUTH_FAILED'],
    [-124, 'SESSION_CLOSED_REQUIRE_SASL_AUTH'],
  ])('reports that it is refused if a request is answered with %i', async (code, name) => {
    script.onMessage = ({ xid }, socket) => {
      socket.write(reply(xid, code));
    };
    const client = await connected();
    const failures = await Promise.all([client.stat('/a'), client.stat('/b')].map(failureOf));
    expect(failures[0]).toMatchObject({
      kind: 'refused',
      message: expect.stringContaining(`${name} (${code}): `) as string,
    });
    expect(reports).toEqual(['connected', 'refused']);
    expect(causes).toEqual([failures[0]]);
  });

  it.each([
    [-102, 'NO_AUTH'],
    [-120, 'EPHEMERAL_ON_LOCAL_SESSION'],
    [-999, 'an error'],
  ])(
    'connects less and less often to servers that answer the first request with %i and disconnect',
    async (code, name) => {
      script.onMessage = ({ xid }, socket) => socket.end(reply(xid, code));
      const client = make();
      client.connect();
      for (let connection = 1; connection <= 5; connection += 1) {
        await reported('connected', connection);
        await failureOf(client.create('/a', 'ephemeral'));
        await reported('disconnected', connection);
      }
      // 250 ms, doubled up to a quarter of the session, and three quarters of that, because the fraction is always a
      // half.
      expect(delays).toEqual([187.5, 375, 750, 750]);
      expect(causes.map(({ message }) => message)).toEqual(
        Array.from({ length: 5 }, () => expect.stringContaining(`${name} (${code})`) as string),
      );
      // A server that keeps the connection is retried immediately after a loss.
      script.onMessage = ({ xid }, socket) => socket.write(reply(xid));
      await reported('connected', 6);
      await sleep(1_000);
      client.reconnect();
      await reported('disconnected', 6);
      expect(delays).toHaveLength(4);
    },
  );

  it('also pauses if servers disconnect after a request that they have executed', async () => {
    script.onMessage = ({ xid }, socket) => socket.end(reply(xid));
    const client = make();
    client.connect();
    for (let connection = 1; connection <= 4; connection += 1) {
      await reported('connected', connection);
      await client.remove('/a');
      await reported('disconnected', connection);
    }
    expect(delays).toEqual([125, 125, 125]);
  });

  it('can be abandoned while it connects, and never connects again', async () => {
    script.onGreeting = () => undefined;
    const client = make();
    client.connect();
    await until(() => script.sockets.length === 1, 'the client has connected');
    client.abandon();
    await once(script.sockets[0]!, 'close');
    await sleep(400);
    expect(script.sockets).toHaveLength(1);
    expect(reports).toEqual([]);
  });

  it('ends its session when it is closed, and settles even if the server disconnects instead', async () => {
    script.onMessage = (_, socket) => socket.destroy();
    const client = await connected();
    await client.close();
    expect(script.messages.map(({ type }) => type)).toEqual([-11]);
    expect(reports).toEqual(['connected']);
  });
});

const bytes = fc.uint8Array({ maxLength: 300 });
const field: fc.Arbitrary<Field> = fc.oneof(
  fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.string({ unit: 'binary' }),
  bytes,
);

/** Cuts `whole` after each of these lengths. */
function cut(whole: Buffer, lengths: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  let rest = whole;
  for (const length of lengths) {
    chunks.push(rest.subarray(0, length));
    rest = rest.subarray(length);
  }
  return [...chunks, rest].filter((chunk) => chunk.length > 0);
}

function read(reader: JuteReader, written: Field): unknown {
  if (typeof written === 'number') return reader.int();
  if (typeof written === 'bigint') return reader.long();
  if (typeof written === 'string') return reader.text();
  return new Uint8Array(reader.bytes());
}

describe('ZooKeeper messages', () => {
  it('contain what was written', () => {
    fc.assert(
      fc.property(fc.array(field), (fields) => {
        const message = encode(fields);
        expect(message.readInt32BE()).toBe(message.length - 4);
        const reader = new JuteReader(message.subarray(4));
        expect(fields.map((written) => read(reader, written))).toEqual(fields);
      }),
    );
  });

  it('are the same however their stream is split', () => {
    fc.assert(
      fc.property(fc.array(bytes), fc.array(fc.integer({ min: 1, max: 50 })), (messages, lengths) => {
        const stream = Buffer.concat(messages.flatMap((message) => [encode([message.length]).subarray(4), message]));
        const splitter = new FrameSplitter();
        const found = cut(stream, lengths).flatMap((chunk) => splitter.push(chunk));
        expect(found.map((each) => new Uint8Array(each))).toEqual(messages);
      }),
    );
  });

  it('are read or rejected, whatever they contain, and never beyond their end', () => {
    const operation = fc.constantFrom('int', 'long', 'bytes', 'text', 'texts');
    fc.assert(
      fc.property(bytes, fc.array(operation), (content, operations) => {
        // The memory behind the message belongs to others.
        const memory = Buffer.concat([content, Buffer.alloc(1_000, 1)]);
        const reader = new JuteReader(memory.subarray(0, content.length));
        let length = 0;
        try {
          for (const each of operations) length += Buffer.from(String(reader[each]())).length > 0 ? 1 : 0;
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
        }
        expect(length).toBeLessThanOrEqual(operations.length);
      }),
    );
  });

  it('are rejected by their first bytes if the peer speaks another protocol', () => {
    const records = [0x14, 0x15, 0x16, 0x17].map((type) => Buffer.from([type, 3, 3, 0]));
    for (const start of ['HTTP', 'SSH-', '-ERR', ...records, Buffer.from('ffffffff', 'hex')]) {
      expect(() => new FrameSplitter().push(Buffer.from(start))).toThrow(/is not a valid ZooKeeper message/);
    }
  });

  it('of 8 MB are assembled from small packets without a copy for each', () => {
    const message = encode(Array.from({ length: 100_000 }, (_, index) => `key-${index}`.padEnd(76)));
    const splitter = new FrameSplitter();
    const concat = jest.spyOn(Buffer, 'concat');
    const found: Buffer[] = [];
    for (let at = 0; at < message.length; at += 1_000) found.push(...splitter.push(message.subarray(at, at + 1_000)));
    expect(found.map((each) => each.equals(message.subarray(4)))).toEqual([true]);
    expect(concat.mock.calls.length).toBeLessThan(5);
    concat.mockRestore();
  });
});
