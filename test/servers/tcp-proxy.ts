import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { reset } from './reset.mjs';

/** A wire between a client and a server that can be cut, and whose replies can be held back or lost. */
export interface TcpProxy {
  readonly port: number;
  /** How many connections were made through it so far. */
  readonly connections: number;
  /** Keeps what the server answers until `passReplies`. */
  holdReplies(): void;
  passReplies(): void;
  /** Loses what the server answers. */
  loseReplies(): void;
  /** From now on each answer takes so many ms longer. */
  slow(ms: number): void;
  /** Breaks all connections; new ones may be made. What was held back is lost. */
  cut(): void;
  /**
   * Breaks a connection on the client's side alone, as a NAT does that has forgotten it: the server goes on believing in it. `port`
   * is the client's as the server sees it; without it, all of them.
   */
  forget(port?: number): void;
  /** Breaks all connections and refuses new ones, until `admit`. */
  refuse(): void;
  admit(): void;
  /**
   * Lets nothing through in either direction, not even the end of a connection, until `thaw`: as a network that is down.
   *
   * @param from the address of the only client that this concerns; default: all
   */
  freeze(from?: string): void;
  thaw(): void;
  /** New connections lead to this port: as an address that follows a fail-over. */
  leadTo(port: number): void;
  close(): Promise<void>;
}

interface Wire {
  readonly client: Socket;
  server: Socket;
  held: Buffer[];
  isForgotten: boolean;
}

/** How long it waits before it calls again a server that does not listen yet, in ms. */
const PAUSE = 10;

/**
 * A proxy on a free port before the server on port `first`.
 *
 * @param patience For how many ms it goes on calling a server that does not listen yet, while the client already believes to be connected.
 */
export async function startTcpProxy(first: number, { patience = 0, host = '127.0.0.1' } = {}): Promise<TcpProxy> {
  const wires = new Set<Wire>();
  let replies: 'pass' | 'hold' | 'lose' = 'pass';
  let refusing = false;
  let delay = 0;
  let isFrozen = (_: Socket) => false;
  let connections = 0;
  let target = first;

  const listener = createServer((client) => {
    if (refusing) {
      reset(client);
      return;
    }
    connections += 1;
    const wire: Wire = { client, server: call(), held: [], isForgotten: false };
    wires.add(wire);
    client.setNoDelay(true);
    if (isFrozen(client)) client.pause();
    client.on('error', () => undefined);
    client.on('close', () => {
      if (wire.isForgotten) return;
      wire.server.destroy();
      wires.delete(wire);
    });
    join(wire, performance.now() + patience);
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');

  function call(): Socket {
    return connect(target, host).setNoDelay(true);
  }

  function join(wire: Wire, until: number): void {
    const { client, server } = wire;
    let isConnected = false;
    if (isFrozen(client)) server.pause();
    server.on('connect', () => {
      isConnected = true;
      client.on('data', (data) => server.write(data));
    });
    server.on('data', (data) => {
      if (replies === 'pass' && delay > 0) setTimeout(() => client.destroyed || client.write(data), delay);
      else if (replies === 'pass') client.write(data);
      else if (replies === 'hold') wire.held.push(data);
    });
    server.on('error', () => undefined);
    server.on('close', () => {
      if (isConnected || client.destroyed || performance.now() >= until) {
        client.destroy();
        return;
      }
      setTimeout(() => {
        if (client.destroyed) return;
        wire.server = call();
        join(wire, until);
      }, PAUSE);
    });
  }

  const cut = () => {
    for (const wire of wires) {
      reset(wire.client);
      wire.server.destroy();
    }
  };
  return {
    port: (listener.address() as AddressInfo).port,
    get connections() {
      return connections;
    },
    holdReplies() {
      replies = 'hold';
    },
    passReplies() {
      replies = 'pass';
      for (const wire of wires) for (const data of wire.held.splice(0)) wire.client.write(data);
    },
    loseReplies() {
      replies = 'lose';
    },
    slow(ms) {
      delay = ms;
    },
    cut,
    forget(port) {
      for (const wire of wires) {
        if (port !== undefined && wire.server.localPort !== port) continue;
        wire.isForgotten = true;
        reset(wire.client);
      }
    },
    refuse() {
      refusing = true;
      cut();
    },
    admit() {
      refusing = false;
    },
    freeze(from) {
      isFrozen = ({ remoteAddress }) => from === undefined || remoteAddress === from;
      for (const { client, server } of wires) {
        if (isFrozen(client)) for (const socket of [client, server]) socket.pause();
      }
    },
    thaw() {
      isFrozen = () => false;
      for (const { client, server } of wires) for (const socket of [client, server]) socket.resume();
    },
    leadTo(port) {
      target = port;
    },
    async close() {
      const closed = once(listener, 'close');
      listener.close();
      cut();
      await closed;
    },
  };
}
