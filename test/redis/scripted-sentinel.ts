import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';

/** Answers as a Sentinel does whose master is on `port`, when it is let to, and tells of a fail-over when it is told to. */
export class ScriptedSentinel {
  readonly #subscribers = new Set<Socket>();
  /** Those that speak RESP 3, in which messages are of a type of their own. */
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

  /** How many want to know where the master is, and have not been answered. */
  get asking(): number {
    return this.#asking.length;
  }

  /** How many would be told of a fail-over. */
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
    // The first line of each command says how many parts it has.
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
