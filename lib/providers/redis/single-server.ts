import { Lane } from './lane.js';
import { LOCK_SCRIPT, LOCK_SCRIPT_SHA } from './lua/lock-script.js';
import type { Operation } from './operation.js';
import type { RedisConnection } from './redis-client.js';
import type { ServerClock } from './server-clock.js';
import { ServerLink } from './server-link.js';
import type { Ask, Servers, ServersContext, ServersListener } from './servers.js';

/** One server, or the master that Sentinel names: one counter and one channel serve the locks of all buckets. */
export class SingleServer implements Servers {
  readonly isCluster = false;
  readonly asks: readonly Ask[];
  readonly #link: ServerLink;
  readonly #lane: Lane;

  constructor(connect: () => RedisConnection, context: ServersContext, listener: ServersListener) {
    const { layout, process } = context;
    this.#link = new ServerLink(context, connect, false, {
      onUp: listener.onUp,
      onDown: listener.onDown,
      onListening: listener.onListening,
      onRefused: () => undefined,
      onMessage: (message) => {
        listener.onNotice(message, undefined);
      },
    });
    this.#link.subscription.listenTo([layout.channelOf(process)]);
    this.#lane = new Lane(layout.counter, { text: LOCK_SCRIPT, sha: LOCK_SCRIPT_SHA }, context, listener);
    this.#lane.link = this.#link;
    this.asks = [(command, ...args) => this.#link.commands.ask(command, ...args)];
  }

  connect(): Promise<void> {
    return this.#link.connect();
  }

  add(operation: Operation): void {
    this.#lane.add(operation);
  }

  confirm(operation: Operation, lease: number): void {
    this.#lane.confirm(operation, lease);
  }

  isReachable(): boolean {
    return this.#link.commands.isUp;
  }

  clockOf(): ServerClock {
    return this.#link.serverClock;
  }

  probe(): void {
    this.#link.subscription.probe();
  }

  close(): Promise<void> {
    return this.#link.close();
  }
}
