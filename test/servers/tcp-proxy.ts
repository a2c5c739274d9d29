import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

type Direction = 'requests' | 'replies';

/** A connection between a client and a server, with injectable network faults. */
export interface TcpProxy {
  readonly port: number;
  /** The number of connections made so far. */
  readonly connections: number;
  /** The connections' source ports as seen by the server. */
  readonly clientPorts: readonly number[];
  /** Holds back the server's replies until `passReplies`. */
  holdReplies(): void;
  passReplies(): void;
  /** Discards the server's replies. */
  loseReplies(): void;
  /** Discards the client's requests. */
  loseRequests(): void;
  /** Delays each reply, or with `both` each chunk in either direction, by this many ms. */
  slow(ms: number, directions?: 'replies' | 'both'): void;
  /** Breaks all connections, but allows new ones. Data held back is lost. */
  cut(): void;
  /** Like `cut`, but also resets the server's side. */
  resetAll(): void;
  /**
   * Breaks a connection only on the client's side, like a NAT that has forgotten it. The server considers it open.
   * `port` is the client's port as seen by the server. By default, all connections.
   */
  forget(port?: number): void;
  /**
   * Simulates a NAT that lost its state: data from the server vanishes, the client's next packet is answered with a
   * reset, and the server isn't notified. New connections work.
   */
  loseState(): void;
  /**
   * Simulates a NAT or load balancer that dropped idle connections: data in both directions vanishes without a reset or
   * an end. New connections work. For `port`, see {@link forget}.
   */
  drop(port?: number): void;
  /** Breaks all connections and refuses new ones until `admit`. */
  refuse(): void;
  admit(): void;
  /**
   * Blocks all traffic in both directions, including closed connections, until `thaw`, like a network outage.
   *
   * @param from The address of the only affected client. By default, all clients.
   */
  freeze(from?: string): void;
  thaw(): void;
  /** Ends all faults. Resets connections that lost data, because their streams are no longer valid. */
  heal(): void;
  /** Routes new connections to this port, like an address that follows a failover. */
  leadTo(port: number): void;
  close(): Promise<void>;
}

interface Wire {
  readonly client: Socket;
  server: Socket;
  held: Buffer[];
  isForgotten: boolean;
  isDropped: boolean;
  /** The last delayed chunk by direction. Later chunks wait for it. */
  readonly last: Partial<Record<Direction, Promise<void> | undefined>>;
}

interface TcpProxyOptions {
  /** For how many ms to retry a server that isn't listening yet, while the client is already connected. */
  readonly patience?: number;
  /** The server's address. Connections use several addresses in turn. */
  readonly host?: string | readonly string[];
  /** Rewrites the server's replies (as Latin-1), to simulate another server. */
  readonly rewrite?: (text: string) => string;
}

/** The pause in ms between attempts to connect to a server that isn't listening yet. */
const PAUSE = 10;

/** Starts a proxy on a free port in front of the server on port `first`. */
export async function startTcpProxy(first: number, options: TcpProxyOptions = {}): Promise<TcpProxy> {
  const { patience = 0, host = '127.0.0.1', rewrite } = options;
  const wires = new Set<Wire>();
  let replies: 'pass' | 'hold' | 'lose' = 'pass';
  let isLosingRequests = false;
  let refusing = false;
  let delays = { requests: 0, replies: 0 };
  let isFrozen = (_: Socket) => false;
  const hosts = [host].flat();
  let connections = 0;
  let calls = 0;
  let target = first;

  const listener = createServer((client) => {
    if (refusing) {
      reset(client);
      return;
    }
    connections += 1;
    const wire: Wire = { client, server: call(), held: [], isForgotten: false, isDropped: false, last: {} };
    wires.add(wire);
    client.setNoDelay(true);
    if (isFrozen(client)) client.pause();
    client.on('error', () => undefined);
    client.on('close', () => {
      if ((wire.isForgotten || wire.isDropped) && !wire.server.destroyed) return;
      wire.server.destroy();
      wires.delete(wire);
    });
    join(wire, performance.now() + patience);
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');

  function call(): Socket {
    calls += 1;
    return connect(target, hosts[(calls - 1) % hosts.length]).setNoDelay(true);
  }

  function join(wire: Wire, until: number): void {
    const { client, server } = wire;
    let isConnected = false;
    if (isFrozen(client)) server.pause();
    server.on('connect', () => {
      isConnected = true;
      client.on('data', (data) => {
        if (wire.isDropped) return;
        if (wire.isForgotten) reset(client);
        else if (!isLosingRequests) pass(wire, 'requests', data);
      });
    });
    server.on('data', (data) => {
      if (wire.isForgotten || wire.isDropped) return;
      if (replies === 'hold') wire.held.push(data);
      else if (replies === 'pass') {
        pass(wire, 'replies', rewrite ? Buffer.from(rewrite(data.toString('latin1')), 'latin1') : data);
      }
    });
    server.on('error', () => undefined);
    server.on('close', () => {
      // The client isn't notified.
      if ((wire.isForgotten || wire.isDropped) && !client.destroyed) return;
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

  /** Counts the delay from the chunk's arrival and keeps the order, so delays don't add up. */
  function pass(wire: Wire, direction: Direction, data: Buffer): void {
    const to = () => (direction === 'requests' ? wire.server : wire.client);
    const due = performance.now() + delays[direction];
    if (delays[direction] === 0 && !wire.last[direction]) {
      to().write(data);
      return;
    }
    const current = (wire.last[direction] ?? Promise.resolve()).then(async () => {
      const left = due - performance.now();
      if (left > 0) await sleep(left);
      if (!to().destroyed && !wire.isForgotten) to().write(data);
      if (wire.last[direction] === current) wire.last[direction] = undefined;
    });
    wire.last[direction] = current;
  }

  const resetAll = () => {
    for (const { client, server } of wires) for (const socket of [client, server]) reset(socket);
  };
  const thaw = () => {
    isFrozen = () => false;
    for (const { client, server } of wires) for (const socket of [client, server]) socket.resume();
  };
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
    get clientPorts() {
      return [...wires].flatMap(({ server }) => server.localPort ?? []);
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
    loseRequests() {
      isLosingRequests = true;
    },
    slow(ms, directions = 'replies') {
      delays = { requests: directions === 'both' ? ms : 0, replies: ms };
    },
    cut,
    resetAll,
    forget(port) {
      for (const wire of wires) {
        if (port !== undefined && wire.server.localPort !== port) continue;
        wire.isForgotten = true;
        reset(wire.client);
      }
    },
    loseState() {
      for (const wire of wires) wire.isForgotten = true;
    },
    drop(port) {
      for (const wire of wires) wire.isDropped ||= port === undefined || wire.server.localPort === port;
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
    thaw,
    heal() {
      if (isLosingRequests || replies !== 'pass') resetAll();
      isLosingRequests = false;
      replies = 'pass';
      delays = { requests: 0, replies: 0 };
      refusing = false;
      thaw();
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

/**
 * Breaks a connection like a host that has forgotten it. A connection that is already ending is destroyed instead: if
 * it's reset in the same tick, Node 20 never closes it and hangs when the process ends.
 */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
