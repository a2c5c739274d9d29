import { withTimeout } from '../../lib/core/toolkit/timing.js';
import type {
  IoredisCluster,
  IoredisClusterConnection,
  IoredisConnection,
  IoredisNode,
} from '../../lib/providers/redis/client/ioredis.js';
import type { Dice } from './dice.js';
import type { Machine } from './machine.js';
import { FIRST_PORT, type Network, SimulatedConnection } from './network.js';

interface FinderOptions {
  readonly redisOptions?: { readonly commandTimeout?: number };
}

/** A Cluster client as ioredis creates it, with the initial masters as its start nodes. */
export function clusterClient(network: Network, machine: Machine, masters: number, dice: Dice): IoredisCluster {
  const ports = Array.from({ length: masters }, (_, index) => FIRST_PORT + index);
  return {
    isCluster: true,
    duplicate: (_nodes, options) => new SimulatedFinder(network, machine, shuffled(ports, dice), options ?? {}),
  };
}

/** Finds nodes. A connection is opened for each call, and is given up if the node doesn't reply in time. */
class SimulatedFinder implements IoredisClusterConnection {
  readonly #connections: SimulatedConnection[] = [];

  constructor(
    private readonly network: Network,
    private readonly machine: Machine,
    private readonly ports: readonly number[],
    readonly options: FinderOptions,
  ) {}

  connect(): Promise<unknown> {
    return Promise.resolve();
  }

  nodes(): IoredisNode[] {
    return this.ports.map((port) => ({
      options: { host: 'start-node', port },
      duplicate: (options: object = {}): IoredisConnection => this.#connectionTo({ port, ...options }),
      call: (...command) => this.#call(port, command),
    }));
  }

  on(): void {
    // It has no event of its own.
  }

  disconnect(): void {
    for (const connection of this.#connections) connection.disconnect();
  }

  #connectionTo(options: object): SimulatedConnection {
    return new SimulatedConnection(this.network, this.machine, options);
  }

  async #call(port: number, command: [string, ...string[]]): Promise<unknown> {
    const connection = this.#connectionTo({ port });
    connection.on('error', () => undefined);
    this.#connections.push(connection);
    const work = connection.connect().then(() => connection.call(...command));
    try {
      return await withTimeout(this.machine.clock, this.options.redisOptions?.commandTimeout ?? 2_000, work, () => {
        throw new Error('Command timed out');
      });
    } finally {
      connection.disconnect();
    }
  }
}

function shuffled<T>(items: readonly T[], dice: Dice): T[] {
  const rest = [...items];
  return items.map(() => rest.splice(dice.whole(rest.length), 1)[0] as T);
}
