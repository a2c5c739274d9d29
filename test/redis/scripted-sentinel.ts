import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';

/** Acts as a Sentinel whose master is on `port`. A test makes it silent, and makes it announce a failover. */
export class ScriptedSentinel {
  readonly #subscribers = new Set<Socket>();
  /** Clients that speak RESP 3, which has its own type for messages. */
  readonly #modern = new Set<Socket>();
  #asking: Socket[] = [];
  #isSilent = false;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(private readonly master: string) {
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        this.#subscribers.delete(socket);
      });
      socket.on('data', (data) => {
        this.#answer(socket, data.toString());
      });
    });
  }

  static async start(port: number): Promise<ScriptedSentinel> {
    const sentinel = new ScriptedSentinel(String(port));
    sentinel.#server.listen(0, '127.0.0.1');
    await once(sentinel.#server, 'listening');
    return sentinel;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** How many requests for the master's address are unanswered. */
  get asking(): number {
    return this.#asking.length;
  }

  /** How many clients are subscribed to failovers. */
  get listening(): number {
    return this.#subscribers.size;
  }

  beSilent(): void {
    this.#isSilent = true;
  }

  speak(): void {
    this.#isSilent = false;
    for (const socket of this.#asking.splice(0)) this.#tell(socket);
  }

  tellOfFailover(): void {
    const message = bulks('message', '+switch-master', 'locks 127.0.0.1 1 127.0.0.1 2');
    for (const socket of this.#subscribers) socket.write(this.#push(socket, message));
  }

  async stop(): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await once(this.#server, 'close');
  }

  #answer(socket: Socket, commands: string): void {
    // The first line of each command contains its number of parts.
    const [, ...each] = commands.toLowerCase().split(/^\*\d+\r\n/m);
    for (const command of each) {
      if (command.includes('get-master-addr-by-name')) {
        if (this.#isSilent) this.#asking.push(socket);
        else this.#tell(socket);
      } else if (command.includes('sentinels')) socket.write('*0\r\n');
      else if (command.includes('hello')) {
        this.#modern.add(socket);
        socket.write('+OK\r\n');
      } else if (command.includes('subscribe')) {
        this.#subscribers.add(socket);
        socket.write(this.#push(socket, `*3\r\n${bulk('subscribe')}${bulk('+switch-master')}:1\r\n`));
      } else socket.write('+OK\r\n');
    }
  }

  #push(socket: Socket, array: string): string {
    return this.#modern.has(socket) ? array.replace('*', '>') : array;
  }

  #tell(socket: Socket): void {
    if (!socket.destroyed) socket.write(bulks('127.0.0.1', this.master));
  }
}

const bulk = (text: string) => `$${text.length}\r\n${text}\r\n`;
const bulks = (...texts: string[]) => `*${texts.length}\r\n${texts.map(bulk).join('')}`;
