import type { Instance } from '../../api/lock-provider.js';
import { NotSent } from './client/redis-connection.js';
import type { KeyLayout } from './key-layout.js';
import type { Servers } from './servers.js';

const KEPT_MS = 86_400_000;

/** The names of instances, which each of them records on the server: holder ids begin with the id of an instance. */
export class InstanceNames {
  constructor(
    private readonly servers: Servers,
    private readonly layout: KeyLayout,
  ) {}

  async record({ id, name }: Instance): Promise<void> {
    await this.#ask('set', this.layout.instanceOf(id), name, 'PX', String(KEPT_MS));
  }

  /** The id where no name is recorded, or none can be read. */
  async nameOf(id: string): Promise<string> {
    const name = await this.#ask('get', this.layout.instanceOf(id)).catch(() => null);
    return typeof name === 'string' ? name : id;
  }

  #ask(command: string, ...args: string[]): Promise<unknown> {
    const { connection } = this.servers.batcherOf(this.layout.counter);
    return new Promise((resolve, reject) => {
      if (connection) connection.send(command, args, resolve, reject);
      else reject(new NotSent('No server is known to keep the names of instances.'));
    });
  }
}
