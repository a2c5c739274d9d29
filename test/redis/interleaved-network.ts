import { EventEmitter, once } from 'node:events';
import type { Redis } from 'ioredis';
import type { IoredisClient, IoredisConnection } from '../../lib/providers/redis/index.js';

interface Request {
  /** The connection on which it was sent: they are numbered. */
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
 * The wires of one process, on which nothing moves by itself: a test decides when the server executes the next command, and when the
 * next reply or message arrives. Behind it stands a real server.
 */
export class InterleavedNetwork {
  readonly requests: Request[] = [];
  readonly replies: Reply[] = [];
  readonly messages: { readonly channel: string; readonly text: string }[] = [];
  /** Commands of lost connections that the server has not read yet. */
  late: Request[] = [];
  readonly client: IoredisClient;
  /** The subscriber's connection is dead, and nobody has noticed. */
  isSilent = false;
  /** How often the provider gave that connection up. */
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

  /** The server executes the oldest command. */
  async execute(): Promise<void> {
    const request = this.requests.shift();
    if (request) this.replies.push(await this.#run(request));
  }

  /** The server executes the oldest command of the lost connections; nobody hears the reply. */
  async executeLate(): Promise<void> {
    const request = this.late.shift();
    if (request) await this.#run(request);
  }

  /** The oldest reply arrives. */
  answer(): void {
    this.replies.shift()?.deliver();
  }

  /** The oldest message arrives. */
  hear(): void {
    const message = this.messages.shift();
    if (message) this.#subscriber.emit('message', message.channel, message.text);
  }

  /** The command connection breaks, and is made anew at once. What the server had not read may still be executed. */
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

  /** The server learns that nobody listens. */
  async deafen(): Promise<void> {
    this.messages.length = 0;
    if (this.#channels.length > 0) await this.listener.unsubscribe(...this.#channels);
  }

  /** Messages go to nobody although the server believes otherwise. */
  loseMessages(): void {
    this.messages.length = 0;
  }

  /** Listens again. */
  listen(): void {
    this.#subscriber.emit('close');
    this.#subscriber.emit('ready');
  }

  /** Lets everything arrive until `promise` has settled. */
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
      // A connection is ended: what it had sent and the server had not read is gone.
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
        // What was under way to the old connection is lost.
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
