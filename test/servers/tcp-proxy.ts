import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

type Direction = 'requests' | 'replies';

/** A wire between a client and a server, with the faults that a network can have. */
export interface TcpProxy {
  readonly port: number;
  /** How many connections were made through it so far. */
  readonly connections: number;
  /** The ports of its connections, as the server sees them. */
  readonly clientPorts: readonly number[];
  /** Keeps what the server answers until `passReplies`. */
  holdReplies(): void;
  passReplies(): void;
  /** Loses what the server answers. */
  loseReplies(): void;
  /** Loses what the client asks. */
  loseRequests(): void;
  /** From now on each answer, or with `both` each chunk in either direction, takes so many ms longer. */
  slow(ms: number, directions?: 'replies' | 'both'): void;
  /** Breaks all connections; new ones may be made. What was held back is lost. */
  cut(): void;
  /** The same, without a goodbye to the server either. */
  resetAll(): void;
  /**
   * Breaks a connection on the client's side alone, as a NAT does that has forgotten it: the server goes on believing in it. `port`
   * is the client's as the server sees it; without it, all of them.
   */
  forget(port?: number): void;
  /**
   * As a NAT does that has lost its state: what the server sends vanishes, the next packet of the client is answered by a reset, and the
   * server never notices. New connections work.
   */
  loseState(): void;
  /**
   * As a NAT or a load balancer does that has dropped connections which were idle: what both sides send on them vanishes, without a reset or an
   * end. New connections work. For `port`, see {@link forget}.
   */
  drop(port?: number): void;
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
  /** Ends all faults. Connections that lost bytes are reset, because their streams are no longer valid. */
  heal(): void;
  /** New connections lead to this port: as an address that follows a failover. */
  leadTo(port: number): void;
  close(): Promise<void>;
}

interface Wire {
  readonly client: Socket;
  server: Socket;
  held: Buffer[];
  isForgotten: boolean;
  isDropped: boolean;
  /** By direction, the chunk that is delayed and comes last: none overtakes it. */
  readonly last: Partial<Record<Direction, Promise<void> | undefined>>;
}

interface TcpProxyOptions {
  /** For how many ms it goes on calling a server that does not listen yet, while the client already believes to be connected. */
  readonly patience?: number;
  /** The address of the server. Connections go to several addresses in turn. */
  readonly host?: string | readonly string[];
  /** Changes what the server says, as Latin-1: it is then another server for its clients. */
  readonly rewrite?: (text: string) => string;
}

/** How long it waits before it calls again a server that does not listen yet, in ms. */
const PAUSE = 10;

/** A proxy on a free port before the server on port `first`. */
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
      // The client does not learn of it.
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

  /** A delay is counted from the arrival and reorders nothing, so delays do not add up. */
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
 * Breaks a connection, as a host that has forgotten it does. One that is just being ended is closed instead: asked to reset it in
 * the same tick, Node 20 never closes it at all, and hangs when the process ends.
 */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
