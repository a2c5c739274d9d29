import { EventEmitter } from 'node:events';
import type { IoredisClient, IoredisConnection } from '../../lib/providers/redis/index.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { ModelNode } from './model-node.js';

/** What lies between a process and a node: `stuck` holds everything back, `slow` delays by up to two seconds, `brittle` breaks connections. */
export type Weather = 'good' | 'stuck' | 'slow' | 'brittle';

type Chance = () => number;

const LATENCY = 4;
const SLOW = 2_000;
const BREAKS = 0.05;

/** A node with its clock, which runs a little faster or slower than true time and shows another time of day. */
export class SimulatedNode {
  readonly model: ModelNode;
  readonly sockets = new Set<Socket>();
  /** What is stored under other keys than those of the votes. */
  readonly records = new Map<string, string>();
  #starts = 1;

  constructor(
    readonly index: number,
    private readonly truth: FakeClock,
    private readonly rate: number,
    private readonly skew: number,
  ) {
    this.model = new ModelNode(() => this.#time());
  }

  get runId(): string {
    return `${this.index}x${this.#starts}`;
  }

  get info(): string {
    // It has always been up for long by its own wall clock, which proves nothing.
    return `run_id:${this.runId}\r\nuptime_in_seconds:3600\r\nredis_mode:standalone\r\n`;
  }

  forget(): void {
    this.model.forget();
    this.records.clear();
  }

  /** It is started again, empty. */
  restart(): void {
    this.forget();
    this.#starts += 1;
    for (const socket of [...this.sockets]) socket.break();
  }

  /** Whether an operation of this kind is on its way to the node. */
  awaits(code: string): boolean {
    return [...this.sockets].some((socket) => socket.carries(code));
  }

  #time(): number {
    return this.truth.wallTime() + this.truth.now() * (this.rate - 1) + this.skew;
  }
}

/** Messages that arrive one after another, in their order. */
class Pipe<T> {
  readonly messages: { readonly at: number; readonly message: T }[] = [];
  #isPumping = false;

  constructor(
    private readonly wire: Wire,
    private readonly arrive: (message: T) => void,
  ) {}

  push(message: T): void {
    this.messages.push({ at: this.wire.truth.now() + this.wire.delay(), message });
    this.#pump();
  }

  #pump(): void {
    const [head] = this.messages;
    if (this.#isPumping || !head) return;
    this.#isPumping = true;
    const { truth } = this.wire;
    truth.setTimer(
      () => {
        this.#isPumping = false;
        if (this.wire.weather !== 'stuck' && this.messages[0] === head) {
          this.messages.shift();
          this.arrive(head.message);
        }
        this.#pump();
      },
      Math.max(head.at - truth.now(), this.wire.weather === 'stuck' ? 20 : 0),
    );
  }
}

interface Request {
  readonly command: string;
  readonly args: readonly string[];
  readonly settle: (error: Error | undefined, reply?: unknown) => void;
}

/** One TCP connection. Its two ends may know different things of it. */
class Socket {
  readonly #requests: Pipe<Request>;
  readonly #replies: Pipe<() => void>;

  constructor(
    private readonly node: SimulatedNode,
    private readonly wire: Wire,
    private readonly id: number,
    private readonly onClosed: () => void,
  ) {
    this.#requests = new Pipe(wire, (request) => {
      this.#execute(request);
    });
    this.#replies = new Pipe(wire, (deliver) => {
      deliver();
    });
    node.sockets.add(this);
  }

  send(request: Request): void {
    this.#requests.push(request);
    if (this.wire.weather === 'brittle' && this.wire.chance() < BREAKS) this.break();
  }

  carries(code: string): boolean {
    return this.#requests.messages.some(({ message }) => {
      if (!message.command.startsWith('eval')) return false;
      const values = message.args.slice(2 + Number(message.args[1]));
      return values.some((value, index) => index % 3 === 1 && value === code);
    });
  }

  /** Both ends have it closed; what was in flight is lost. */
  break(): void {
    this.node.sockets.delete(this);
    this.#requests.messages.length = 0;
    this.#replies.messages.length = 0;
    this.onClosed();
  }

  #execute({ command, args, settle }: Request): void {
    const answer = (error: Error | undefined, reply?: unknown) => {
      this.#replies.push(() => {
        settle(error, reply);
      });
    };
    if (command.startsWith('eval')) answer(undefined, this.node.model.run(args.slice(1)));
    else if (command === 'info') answer(undefined, this.node.info);
    else if (command === 'get') answer(undefined, this.node.records.get(args[0]!) ?? null);
    else if (command === 'set') {
      this.node.records.set(args[0]!, args[1]!);
      answer(undefined, 'OK');
    } else if (args[0] === 'INFO') answer(undefined, `id=${this.id} addr=process:${this.id}`);
    else {
      const lost = [...this.node.sockets].find(({ id }) => String(id) === args[2]);
      lost?.break();
      answer(undefined, lost ? 1 : 0);
    }
  }
}

/** All that one process sends to one node, over one connection after another. */
export class Wire implements IoredisClient {
  weather: Weather = 'good';
  #ids: number;

  constructor(
    readonly truth: FakeClock,
    readonly chance: Chance,
    private readonly node: SimulatedNode,
    process: number,
  ) {
    this.#ids = process * 1_000_000;
  }

  delay(): number {
    return 1 + this.chance() * (this.weather === 'slow' ? SLOW : LATENCY);
  }

  duplicate(): IoredisConnection {
    return new SimulatedConnection(this);
  }

  open(onClosed: () => void): Socket {
    return new Socket(this.node, this, (this.#ids += 1), onClosed);
  }
}

/** The process's end: what ioredis does with our settings. */
class SimulatedConnection extends EventEmitter implements IoredisConnection {
  #socket: Socket | undefined;
  #pending = new Set<Request['settle']>();
  #isEnded = false;

  constructor(private readonly wire: Wire) {
    super();
  }

  connect(): Promise<unknown> {
    return new Promise((resolve) => {
      this.once('ready', resolve);
      this.#dial();
    });
  }

  disconnect(reconnect = false): void {
    this.#isEnded = !reconnect;
    this.#leave();
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const settle: Request['settle'] = (error, reply) => {
        if (!this.#pending.delete(settle)) return;
        if (error) reject(error);
        else resolve(reply);
      };
      this.#pending.add(settle);
      if (this.#socket) this.#socket.send({ command, args, settle });
      else settle(new Error('There is no connection.'));
    });
  }

  subscribe(): Promise<unknown> {
    return Promise.reject(new Error('Nobody subscribes.'));
  }

  #dial(): void {
    this.wire.truth.setTimer(() => {
      if (this.#isEnded || this.#socket) return;
      if (this.wire.weather === 'stuck') {
        this.#dial();
        return;
      }
      const socket = this.wire.open(() => {
        if (this.#socket === socket) this.#leave();
      });
      this.#socket = socket;
      this.emit('connect');
      this.emit('ready');
    }, 20 + this.wire.delay());
  }

  // What is on its way to the node may still get there.
  #leave(): void {
    this.#socket = undefined;
    this.emit('close');
    for (const settle of [...this.#pending]) settle(new Error('The connection is closed.'));
    if (!this.#isEnded) this.#dial();
  }
}
