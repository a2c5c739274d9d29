import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { nodeZooKeeperClients } from '../../lib/providers/zookeeper/node-zookeeper-client.js';
import {
  type ClientListener,
  isFailure,
  type ZooKeeperClient,
} from '../../lib/providers/zookeeper/zookeeper-client.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';

const SESSION_MOVED = -118;

/** Answers of a server, byte by byte: for what a real one says rarely, or half. */
const frame = (...parts: Buffer[]): Buffer => {
  const body = Buffer.concat(parts);
  return Buffer.concat([int(body.length), body]);
};
const int = (value: number): Buffer => {
  const buffer = Buffer.alloc(4);
  buffer.writeInt32BE(value);
  return buffer;
};
const greeting = frame(int(0), int(4_000), Buffer.from('000000000000002a', 'hex'), int(16), Buffer.alloc(16));
const reply = (xid: number, error: number, ...payload: Buffer[]) =>
  frame(int(xid), Buffer.alloc(8), int(error), ...payload);

describe('The client on node-zookeeper-client', () => {
  let server: Server;
  let client: ZooKeeperClient;
  let onConnection: (socket: Socket, count: number) => void;
  let connections = 0;
  let onConnected: () => void = () => undefined;
  let onDisconnected: () => void = () => undefined;

  beforeEach(async () => {
    connections = 0;
    server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => {
        onConnection(socket, (connections += 1));
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const instance = { id: '0123456789ab', name: 'host:1' };
    const factory = await nodeZooKeeperClients(readOptions({ connectString: `127.0.0.1:${port}` }), instance);
    const listener: ClientListener = {
      onConnected: () => onConnected(),
      onDisconnected: () => onDisconnected(),
      onExpired: () => undefined,
      onRefused: () => undefined,
    };
    client = factory(listener);
  });

  afterEach(async () => {
    client.abandon();
    server.close();
    await once(server, 'close');
  });

  const connected = () => new Promise<void>((resolve) => (onConnected = resolve));
  const disconnected = () => new Promise<void>((resolve) => (onDisconnected = resolve));

  it('forgets the half of an answer that came before the connection broke', async () => {
    onConnection = (socket, count) => {
      socket.write(greeting);
      if (count > 1) return;
      socket.end(int(500));
    };
    client.connect();
    await disconnected();
    await connected();
    expect(client.sessionTimeout).toBe(4_000);
    expect(client.sessionId).toBe(42n);
  });

  it('breaks the connection on an error that the library does not know, instead of ending the process', async () => {
    onConnection = (socket) => {
      socket.write(greeting);
      socket.on('data', () => socket.write(reply(0, SESSION_MOVED)));
    };
    const up = connected();
    client.connect();
    await up;
    const down = disconnected();
    client.stat('/').catch(() => undefined);
    await down;
    await connected();
  });

  it('sends nothing later that was asked for while there was no connection', async () => {
    const sent: Buffer[] = [];
    onConnection = (socket) => {
      socket.write(greeting);
      socket.on('data', (data) => sent.push(data));
    };
    const failure = await client.create('/a', 'persistent').catch((error: unknown) => error);
    expect(isFailure(failure, 'unanswered')).toBe(true);
    const up = connected();
    client.connect();
    await up;
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(sent).toEqual([]);
  });

  it('can be abandoned while it connects, and never connects again', async () => {
    const greeted = new Promise<Socket>((resolve) => (onConnection = resolve));
    client.connect();
    const socket = await greeted;
    client.abandon();
    await once(socket, 'close');
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(connections).toBe(1);
  });
});
