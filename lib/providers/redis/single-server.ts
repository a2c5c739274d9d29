import { Batcher, type Operation } from './client/batcher.js';
import type { Ask } from './client/diagnostics.js';
import type { Connect } from './client/redis-connection.js';
import { LOCK_SCRIPT, RECORD_SCRIPT } from './lua/lock-script.js';
import { Server, type ServerSettings, type ServersListener } from './server.js';
import type { ServerClock } from './server-clock.js';
import type { Servers } from './servers.js';

/** One server, or the master that Sentinel names: one counter and one channel serve the locks of all buckets. */
export class SingleServer implements Servers {
  readonly isCluster = false;
  readonly #batcher: Batcher;
  readonly #confirmer: Batcher;
  readonly #recorder: Batcher;
  readonly #channel: string;
  #server: Server | undefined;
  #isClosed = false;

  constructor(
    private readonly connections: () => Promise<Connect>,
    private readonly settings: ServerSettings,
    private readonly listener: ServersListener,
  ) {
    const { process, layout, clock, waitReplicas } = settings;
    const batcher = (script = LOCK_SCRIPT) =>
      new Batcher(process, layout.counter, script, clock, (notice, sentAt) => {
        listener.onNotice(notice, sentAt);
      });
    this.#batcher = batcher();
    this.#channel = layout.channelOf(process);
    this.#confirmer = waitReplicas > 0 ? batcher() : this.#batcher;
    this.#recorder = batcher(RECORD_SCRIPT);
  }

  get asks(): readonly Ask[] {
    const { commands } = this.#server ?? {};
    return commands ? [(command, ...args) => commands.ask(command, ...args)] : [];
  }

  async connect(): Promise<void> {
    const connect = await this.connections();
    if (this.#isClosed) throw new Error('It was closed before it had connected.');
    const server = new Server(this.settings, connect, this.listener);
    this.#server = server;
    this.#batcher.connection = server.commands;
    if (server.confirmations) this.#confirmer.connection = server.confirmations;
    this.#recorder.connection = server.confirmations ?? server.commands;
    server.subscription.listenTo([this.#channel]);
    await server.connect();
  }

  batcherOf(): Batcher {
    return this.#batcher;
  }

  confirm(operation: Operation, lease: number): void {
    this.#server?.confirmations?.limit(lease);
    this.#confirmer.add(operation);
  }

  recorderOf(): Batcher {
    return this.#recorder;
  }

  channelOf(): string {
    return this.#channel;
  }

  clockOf(): ServerClock | undefined {
    return this.#server?.serverClock;
  }

  probe(): void {
    this.#server?.subscription.probe();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#server?.close();
  }
}
