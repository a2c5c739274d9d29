import { EventEmitter } from 'node:events';
import type { IoredisConnection } from '../../lib/providers/redis/client/ioredis.js';
import type { Dice } from './dice.js';
import type { Reply } from './lua-engine.js';
import type { Machine } from './machine.js';
import type { Effect, ModelClient, RedisModel } from './redis-model.js';
import { bucketOf, type SlotMap } from './slot-map.js';
import type { Timeline, WorldEvent } from './timeline.js';

/** How long messages take, in ms. */
export interface Latency {
  readonly typical: number;
  /** The share of messages that take longer. */
  readonly slowShare: number;
  readonly slow: number;
}

/** A Redis server on its machine. */
export class WorldServer {
  /** Until when it executes nothing, in true time. */
  pausedUntil = 0;
  /** Until when it accepts no connections. */
  downUntil = 0;
  readonly links = new Set<Link>();
  /** Until when a machine is cut off from this server only. */
  readonly cutFrom = new Map<Machine, number>();

  constructor(readonly model: RedisModel) {}

  /** Breaks all its connections. */
  endLinks(why: string): void {
    for (const link of [...this.links]) link.breakOff(why);
  }
}

/** What the world may do after a command was executed and before its reply is sent. */
export type Strike = (link: Link, effects: ReadonlySet<Effect>, command: readonly string[]) => void;

/** The first server's port. The servers' ports are consecutive. */
export const FIRST_PORT = 7_000;

/** The network between the machines and the servers. */
export class Network {
  /**
   * All servers. Connections lead to the last one. In a Cluster and to independent nodes, they lead to a port instead.
   */
  readonly servers: WorldServer[] = [];
  /** In a Cluster: which servers own the slots, and which slots are migrating. */
  slots: SlotMap | undefined;
  /** Whether the servers are the nodes of Redlock, or the servers of a failover provider. */
  areIndependent = false;
  /** Until when a machine is cut off, in true time. */
  readonly cutUntil = new Map<Machine, number>();
  slowUntil = 0;
  /** Called for each command when a client sends it. */
  onSent: (machine: Machine, command: readonly string[]) => void = () => undefined;
  onExecuted: Strike = () => undefined;
  /** Called for each executed command, for the story. */
  onCommand: (link: Link, command: readonly string[], reply: Reply) => void = () => undefined;
  /** Called for each subscription that the server ends, for the story. */
  onUnsubscribed: (link: Link, channel: string) => void = () => undefined;
  #links = 0;

  constructor(
    readonly timeline: Timeline,
    readonly dice: Dice,
    private readonly latency: Latency,
  ) {}

  get server(): WorldServer {
    const server = this.servers.at(-1);
    if (server === undefined) throw new Error('There is no server.');
    return server;
  }

  serverAt(port: number): WorldServer {
    const server = this.servers[port - FIRST_PORT];
    if (server === undefined) throw new Error(`There is no server at port ${port}.`);
    return server;
  }

  portOf(server: WorldServer): number {
    return FIRST_PORT + this.servers.indexOf(server);
  }

  /** The masters of the Cluster, or the independent servers; otherwise the server to which connections lead. */
  get masters(): WorldServer[] {
    if (this.areIndependent) return this.servers;
    return this.slots ? this.servers.filter(({ model }) => !model.isReplica) : [this.server];
  }

  /**
   * The data that contains a key, or would contain it. While its slot migrates, a key that has already moved is at the
   * target.
   */
  modelOf(key: string): RedisModel {
    const owner = this.slots?.ownerOf(key);
    if (owner === undefined) return this.server.model;
    const target = this.slots?.migrating.get(bucketOf(key));
    const arrived = target === undefined ? undefined : this.serverAt(target).model;
    return arrived?.has(key) ? arrived : this.serverAt(owner).model;
  }

  isCut(machine: Machine): boolean {
    return (this.cutUntil.get(machine) ?? 0) > this.timeline.now;
  }

  nextLinkId(): number {
    return (this.#links += 1);
  }

  linksOf(machine: Machine): Link[] {
    return this.servers.flatMap(({ links }) => [...links]).filter((link) => link.machine === machine);
  }

  delay(): number {
    const { typical, slowShare, slow } = this.latency;
    const factor = this.timeline.now < this.slowUntil ? 30 : 1;
    return this.dice.chance(slowShare)
      ? this.dice.around(slow * factor)
      : typical / 3 + this.dice.around(typical * factor);
  }
}

/** One direction of a connection: first in, first out. */
class Pipe {
  /** Until when nothing comes out, in true time. */
  heldUntil = 0;
  #last = 0;
  readonly #queue: { readonly at: number; readonly arrive: () => void }[] = [];
  #event: WorldEvent | undefined;

  /** @param blockedUntil until when the path lets nothing through */
  constructor(
    private readonly network: Network,
    private readonly blockedUntil: () => number,
  ) {}

  send(arrive: () => void): void {
    const { timeline } = this.network;
    this.#last = Math.max(this.#last, timeline.now + this.network.delay());
    this.#queue.push({ at: this.#last, arrive });
    this.#event ??= timeline.at(this.#last, this.#deliver);
  }

  readonly #deliver = (): void => {
    this.#event = undefined;
    const { timeline } = this.network;
    const [head] = this.#queue;
    if (head === undefined) return;
    const at = Math.max(head.at, this.heldUntil, this.blockedUntil());
    if (at <= timeline.now) {
      this.#queue.shift();
      head.arrive();
    }
    const next = this.#queue[0];
    if (next !== undefined)
      this.#event ??= timeline.at(Math.max(next.at, this.heldUntil, this.blockedUntil()), this.#deliver);
  };
}

/** One TCP connection: both ends, and what is in flight between them. */
export class Link implements ModelClient {
  readonly id: number;
  readonly toServer: Pipe;
  readonly toClient: Pipe;
  readonly server: WorldServer;
  /** The client has closed its end. Replies in flight may still arrive. */
  isGivenUp = false;
  /** The name of the message event if the connection serves a subscriber. */
  #messages: 'message' | 'smessage' | undefined;
  /** Neither end receives anything any longer. */
  #isBroken = false;

  constructor(
    private readonly network: Network,
    readonly machine: Machine,
    private readonly connection: SimulatedConnection,
    private readonly port: number | undefined,
  ) {
    this.id = network.nextLinkId();
    this.server = this.#reached;
    const wire = () => Math.max(network.cutUntil.get(machine) ?? 0, this.server.cutFrom.get(machine) ?? 0);
    this.toServer = new Pipe(network, () => Math.max(wire(), this.server.pausedUntil));
    this.toClient = new Pipe(network, wire);
  }

  get isSubscriber(): boolean {
    return this.#messages !== undefined;
  }

  /** The server to which its address leads now. */
  get #reached(): WorldServer {
    return this.port === undefined ? this.network.server : this.network.serverAt(this.port);
  }

  open(): void {
    const { server, machine } = this;
    this.toServer.send(() => {
      if (this.#isBroken) return;
      // By now, Sentinel names another master, or the server is down.
      if (server !== this.#reached || server.downUntil > this.network.timeline.now) {
        this.breakOff('connect ECONNREFUSED');
        return;
      }
      server.links.add(this);
      server.model.clients.set(this.id, this);
      this.receive(() => {
        this.connection.opened(this);
      });
    });
    // A broken network lets no handshake through, and a client waits for that only for a limited time.
    this.network.timeline.in(2_000, () => {
      machine.run(() => {
        if (!server.links.has(this)) this.connection.closed(this, new Error('connect ETIMEDOUT'));
      });
    });
  }

  request(command: readonly string[], onReply: (reply: Reply) => void): void {
    const { model, links } = this.server;
    this.network.onSent(this.machine, command);
    this.toServer.send(() => {
      if (this.#isBroken || !links.has(this)) return;
      if (command[0] === 'subscribe') this.#messages = 'message';
      if (command[0] === 'ssubscribe') this.#messages = 'smessage';
      const reply = model.execute(this, command);
      this.network.onCommand(this, command, reply);
      this.network.onExecuted(this, model.effects, command);
      this.receive(() => {
        onReply(reply);
      });
    });
  }

  push(channel: string, message: string): void {
    this.receive(() => {
      this.connection.onMessage(this, this.#messages ?? 'message', channel, message);
    });
  }

  unsubscribed(channel: string): void {
    this.network.onUnsubscribed(this, channel);
    this.receive(() => {
      this.connection.moved(this);
    });
  }

  end(): void {
    this.breakOff('Connection killed');
  }

  /** The client closes its end. The server sees that after everything sent earlier. */
  close(): void {
    this.isGivenUp = true;
    this.toServer.send(() => {
      if (this.#isBroken) return;
      this.#leave();
      this.receive(() => {
        this.connection.closed(this);
      });
    });
  }

  /** The client library disconnects from the server. */
  leave(): void {
    this.machine.run(() => {
      this.connection.leave(this);
    });
  }

  /** Both directions end, and everything in flight is lost. */
  breakOff(why: string): void {
    if (this.#isBroken) return;
    this.#isBroken = true;
    this.#leave();
    this.network.timeline.in(this.network.dice.around(2), () => {
      this.machine.run(() => {
        this.connection.closed(this, new Error(why));
      });
    });
  }

  #leave(): void {
    this.server.links.delete(this);
    this.server.model.drop(this);
  }

  private receive(run: () => void): void {
    this.toClient.send(() => {
      if (this.#isBroken) return;
      this.machine.run(() => {
        if (!this.#isBroken) run();
      });
    });
  }
}

type Settle = (error: Error | undefined, reply?: Reply) => void;

interface ClientOptions {
  /** The port of a Cluster node or an independent node. */
  readonly port?: number;
  readonly disconnectTimeout?: number;
  readonly retryStrategy?: (times: number) => number;
}

/**
 * A connection as ioredis implements it: it reconnects on its own, and after being given up, it still reads until it is
 * closed.
 */
export class SimulatedConnection extends EventEmitter implements IoredisConnection {
  readonly #inFlight = new Map<Link, Set<Settle>>();
  #link: Link | undefined;
  #isOpen = false;
  #tries = 0;
  #connectsAgain = true;

  constructor(
    private readonly network: Network,
    private readonly machine: Machine,
    private readonly given: ClientOptions,
  ) {
    super();
  }

  connect(): Promise<unknown> {
    this.#connectsAgain = true;
    return new Promise((resolve, reject) => {
      const settle = (error?: Error) => {
        this.off('ready', onReady).off('close', onClose);
        if (error) reject(error);
        else resolve(undefined);
      };
      const onReady = () => {
        settle();
      };
      const onClose = () => {
        settle(new Error('Connection is closed.'));
      };
      this.on('ready', onReady).on('close', onClose);
      this.#open();
    });
  }

  disconnect(reconnect = false): void {
    this.#connectsAgain = reconnect;
    const link = this.#link;
    if (link === undefined) return;
    link.close();
    const patience = this.#isOpen ? (this.given.disconnectTimeout ?? 2_000) : 0;
    this.network.timeline.in(patience, () => {
      this.machine.run(() => {
        this.closed(link);
      });
    });
  }

  /**
   * The library leaves a server that is no longer the master, without waiting for the server's end of the connection.
   */
  leave(link: Link): void {
    // A connection that was given up is still read until the server closes it.
    if (this.#link !== link || link.isGivenUp) return;
    link.close();
    this.closed(link, new Error('The master has changed.'));
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    const link = this.#link;
    if (!this.#isOpen || link === undefined) return Promise.reject(new Error('Connection is closed.'));
    return new Promise((resolve, reject) => {
      const inFlight = this.#inFlight.get(link) ?? new Set();
      this.#inFlight.set(link, inFlight);
      const settle: Settle = (error, reply) => {
        inFlight.delete(settle);
        if (error) reject(error);
        else resolve(reply);
      };
      inFlight.add(settle);
      link.request([command, ...args], (reply) => {
        if (!inFlight.has(settle)) return;
        if (command === 'ssubscribe' && reply instanceof Error && reply.message.includes('MOVED')) {
          // ioredis never settles this call.
          inFlight.delete(settle);
          this.moved(link);
        } else if (reply instanceof Error) settle(reply);
        else settle(undefined, reply);
      });
    });
  }

  subscribe(channel: string): Promise<unknown> {
    return this.call('subscribe', channel);
  }

  opened(link: Link): void {
    if (this.#link !== link) return;
    this.#isOpen = true;
    this.#tries = 0;
    this.emit('connect');
    this.emit('ready');
  }

  onMessage(link: Link, event: 'message' | 'smessage', channel: string, message: string): void {
    // The socket of a closed connection is no longer read.
    if (this.#link === link) this.emit(event, channel, message);
  }

  moved(link: Link): void {
    if (this.#link === link) this.emit('moved');
  }

  closed(link: Link, error?: Error): void {
    if (this.#link !== link) return;
    this.#link = undefined;
    this.#isOpen = false;
    if (!link.isGivenUp) link.close();
    if (error) this.emit('error', error);
    this.emit('close');
    const inFlight = this.#inFlight.get(link) ?? [];
    this.#inFlight.delete(link);
    for (const settle of [...inFlight]) settle(new Error('Connection is closed.'));
    if (!this.#connectsAgain) {
      this.emit('end');
      return;
    }
    this.#tries += 1;
    const delay = this.given.retryStrategy?.(this.#tries) ?? 50;
    this.machine.clock.setTimer(() => {
      if (this.#connectsAgain && this.#link === undefined) this.#open();
    }, delay);
  }

  #open(): void {
    const link = new Link(this.network, this.machine, this, this.given.port);
    this.#link = link;
    link.open();
  }
}
