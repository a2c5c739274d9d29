import type { AcquireRequest } from '../../api/lock-provider.js';
import type { KeyLayout } from './key-layout.js';
import { plainCommand } from './plain-command.js';
import type { Servers } from './servers.js';
import { holderIn } from './wire.js';

/**
 * The labels of holders, each in a key beside its lock.
 *
 * A label begins with the id of the request that holds the lock. The lock names that too, so a label of an earlier holder is recognized: no release has to
 * delete it, and it ends by itself. The lock script knows nothing of labels, and both commands are among those that it uses.
 */
export class HolderLabels {
  constructor(
    private readonly servers: Servers,
    private readonly layout: KeyLayout,
  ) {}

  /** A failure is not reported: the lock does not depend on it. */
  write({ key, id }: AcquireRequest, text: string, duration: number): void {
    const lock = this.layout.lockOf(key);
    const args = [this.layout.labelOf(lock), id + text, 'PX', String(Math.ceil(duration))];
    this.servers.batcherOf(lock).connection?.send('set', args, ignore, ignore);
  }

  /** Both commands travel together. Between them the lock may change hands: then the label is not that of the holder, or the holder has just left. */
  async read(key: string): Promise<string | null> {
    const lock = this.layout.lockOf(key);
    const [value, label] = await Promise.all([this.#get(lock, lock), this.#get(lock, this.layout.labelOf(lock))]);
    const holder = holderIn(value);
    const isPresent = typeof label === 'string' && holder !== undefined && label.startsWith(holder);
    return isPresent ? label.slice(holder.length) : null;
  }

  #get(lock: string, name: string): Promise<unknown> {
    return plainCommand(this.servers, lock, 'this lock', 'get', name);
  }
}

function ignore(): void {
  // Nobody waits for it.
}
