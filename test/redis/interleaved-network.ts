import { EventEmitter, once } from 'node:events';
import type { Redis } from 'ioredis';
import type { IoredisClient, IoredisConnection } from '../../lib/providers/redis/index.js';

interface Request {
  /** The number of the connection on which the request was sent. */
  readonly connection: number;
  readonly command: string;
  readonly args: string[];
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: unknown) => void;
}

interface Reply {
  readonly deliver: () => void;
}

/**
 * The wires of one process, on which nothing moves by itself: a test decides when the server executes the next command,
 * and when the next reply or message arrives. The server behind them is real.
 */
export class InterleavedNetwork {
  readonly requests: Request[] = [];
  readonly replies: Reply[] = [];
  readonly messages: { readonly channel: string; readonly text: string }[] = [];
  /** Commands of lost connections that the server has not read yet. */
  late: Request[] = [];
  readonly client: IoredisClient;
  /** Whether the subscriber's connection is dead without either side having noticed. */
  isSilent = false;
  /** How many times the provider gave up the subscriber's connection. */
  resubscriptions = 0;
  readonly #commands = new EventEmitter();
  readonly #subscriber = new EventEmitter();
  #channels: string[] = [];
  #made = 0;
  #connection = 1;

  constructor(
    private readonly server: Redis,
    private readonly listener: Redis,
  ) {
    listener.on('message', (channel: string, text: string) => this.messages.push({ channel, text }));
    this.client = { duplicate: () => this.#duplicate() };
  }

  /** Executes the oldest command on the server. */
  async execute(): Promise<void> {
    const request = this.requests.shift();
    if (request) this.replies.push(await this.#run(request));
  }

  /** Executes the oldest command of the lost connections on the server, and drops the reply. */
  async executeLate(): Promise<void> {
    const request = this.late.shift();
    if (request) await this.#run(request);
  }

  /** Delivers the oldest reply. */
  answer(): void {
    this.replies.shift()?.deliver();
  }

  /** Delivers the oldest message. */
  hear(): void {
    const message = this.messages.shift();
    if (message) this.#subscriber.emit('message', message.channel, message.text);
  }

  /**
   * Breaks the command connection and reconnects immediately. Commands that the server had not read may still be
   * executed.
   */
  cut(): void {
    const lost = this.requests.splice(0);
    this.late.push(...lost);
    const unheard = this.replies.splice(0);
    this.#commands.emit('close');
    for (const { reject } of [...lost, ...unheard.map((reply) => reply as unknown as Request)])
      reject(new Error('Connection is closed.'));
    this.#connection += 1;
    this.#commands.emit('ready');
  }

  /** Makes the server notice that no process listens. */
  async deafen(): Promise<void> {
    this.messages.length = 0;
    if (this.#channels.length > 0) await this.listener.unsubscribe(...this.#channels);
  }

  /** Drops messages while the server believes that they arrive. */
  loseMessages(): void {
    this.messages.length = 0;
  }

  /** Subscribes again. */
  listen(): void {
    this.#subscriber.emit('close');
    this.#subscriber.emit('ready');
  }

  /** Delivers everything until `promise` has settled. */
  async carry<T>(promise: Promise<T>): Promise<T> {
    for (;;) {
      const turn = new Promise<'turn'>((resolve) => setImmediate(resolve, 'turn'));
      if ((await Promise.race([promise, turn])) !== 'turn') return promise;
      await this.execute();
      this.answer();
    }
  }

  /** Waits until all messages that the server has sent so far have arrived here. */
  async collect(): Promise<void> {
    await this.listener.ping();
  }

  async #run({ connection, command, args, resolve, reject }: Request): Promise<Reply & Pick<Request, 'reject'>> {
    if (command === 'client' && args[0] === 'KILL') {
      // CLIENT KILL drops what the connection had sent and the server had not read.
      const count = this.late.length;
      this.late = this.late.filter((request) => String(request.connection) !== args[2]);
      return { reject, deliver: () => resolve(count - this.late.length) };
    }
    if (command === 'client') {
      return { reject, deliver: () => resolve(`id=${connection} addr=127.0.0.1:${connection}`) };
    }
    try {
      const reply = await this.server.call(command, ...args);
      return { reject, deliver: () => resolve(reply) };
    } catch (error) {
      return { reject, deliver: () => reject(error) };
    }
  }

  #duplicate(): IoredisConnection {
    this.#made += 1;
    const isSubscriber = this.#made === 2;
    const emitter = isSubscriber ? this.#subscriber : this.#commands;
    return {
      on: (event, listener) => emitter.on(event, listener),
      connect: async () => {
        queueMicrotask(() => emitter.emit('ready'));
        await once(emitter, 'ready');
      },
      disconnect: (reconnect) => {
        if (!isSubscriber || !reconnect) return;
        this.resubscriptions += 1;
        // Messages in flight on the old connection are lost.
        this.messages.length = 0;
        queueMicrotask(() => {
          this.listen();
        });
      },
      subscribe: async (channel) => {
        this.#channels = [channel];
        await this.listener.subscribe(channel);
      },
      call: (command, ...args) =>
        isSubscriber
          ? this.isSilent
            ? new Promise<never>(() => undefined)
            : Promise.resolve('PONG')
          : new Promise((resolve, reject) => {
              const connection = this.#connection;
              this.requests.push({ connection, command, args, resolve, reject });
            }),
    };
  }
}
