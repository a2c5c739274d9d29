import type { Clock } from '../../api/clock.js';
import { LockConfigError } from '../../api/errors.js';
import { refuseOlder } from '../shared/oldest-version.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import type { MemcachedSettings } from './memcached-options.js';

/** The answer to a read of a key. */
export interface Item {
  readonly value: string;
  /** Changes with each write of the key. */
  readonly cas: string;
  /** Whole seconds until it ends. */
  readonly seconds: number;
}

/** The part that we use of a node of the `memcache` package, whose own types need those of a browser. */
interface Node {
  connect(): Promise<void>;
  disconnect(): Promise<void>;
  command(text: string, options?: CommandOptions): Promise<unknown>;
  on(event: 'error' | 'close', listener: (error?: unknown) => void): unknown;
}

interface CommandOptions {
  readonly isMultiline?: boolean;
  readonly isStats?: boolean;
  readonly requestedKeys?: string[];
}

interface Client {
  createNode(host: string, port: number, options: { readonly timeout: number }): Node;
}

// Its predecessors answer the meta commands differently, and no lock would be granted.
const OLDEST = '1.6.10';

const CLIENT: string = 'memcache';

// The client would close a connection that is idle for this many ms.
const IDLE = 2 ** 31 - 1;

/**
 * One connection, from its opening to its end. It never reconnects, so a reply to an earlier connection cannot be taken for one of its own.
 *
 * It is built on a node of the `memcache` client, one layer below that package's cache. The cache answers a command that has
 * failed in the same way as a command that was refused (`add` is false, `get` is undefined), and reads no cas ids.
 */
export class Connection {
  #onEnd: ((cause: unknown) => void) | undefined;

  private constructor(
    private readonly node: Node,
    private readonly clock: Clock,
    private readonly commandTimeout: number,
  ) {}

  /** @throws LockConfigError when the package is missing or the server too old; what the client throws when it cannot connect */
  static async open({ host, port, commandTimeout }: MemcachedSettings, clock: Clock): Promise<Connection> {
    const client = await loadClient();
    const node = client.createNode(host, port, { timeout: IDLE });
    const connection = new Connection(node, clock, commandTimeout);
    let cause: unknown;
    node.on('error', (error: unknown) => (cause ??= error));
    node.on('close', () => {
      connection.#end(cause ?? new Error('The server closed the connection.'));
    });
    try {
      await connection.#within(node.connect());
      await connection.#refuseOld();
    } catch (error) {
      connection.close();
      throw error;
    }
    return connection;
  }

  /** Calls `listener` once when the connection ends, unless {@link close} has ended it. */
  onEnd(listener: (cause: unknown) => void): void {
    this.#onEnd = listener;
  }

  /** Whether the item was added: there was none. */
  async add(key: string, value: string, seconds: number): Promise<boolean> {
    const reply = await this.#command(`add ${key} 0 ${seconds} ${value.length}\r\n${value}`);
    return decide(reply, 'STORED', false);
  }

  /** Writes the item unless it has changed since it was read. */
  async replace(key: string, { cas }: Item, value: string, seconds: number): Promise<boolean> {
    const reply = await this.#command(`cas ${key} 0 ${seconds} ${value.length} ${cas}\r\n${value}`);
    return decide(reply, 'STORED', 'EXISTS', 'NOT_FOUND');
  }

  /** Deletes the item unless it has changed since it was read. */
  async delete(key: string, { cas }: Item): Promise<boolean> {
    return decide(await this.#command(`md ${key} C${cas}`), 'HD', 'EX', 'NF');
  }

  /**
   * The cas id is read before the value, because the client reads only one of them at a time. So a write with this id changes this
   * value, or nothing.
   */
  async read(key: string): Promise<Item | undefined> {
    const [meta, found] = await Promise.all([
      this.#command(`mg ${key} c t`),
      this.#command(`get ${key}`, { isMultiline: true, requestedKeys: [key] }),
    ]);
    const [, cas, seconds] = /^HD c(\d+) t(-?\d+)$/.exec(String(meta)) ?? [];
    const value = (found as { readonly values?: readonly string[] } | undefined)?.values?.[0];
    if (cas === undefined || value === undefined) return undefined;
    return { cas, value, seconds: Number(seconds) };
  }

  /** Deletes the item, whatever its value; answers whether there was one. */
  async remove(key: string): Promise<boolean> {
    return decide(await this.#command(`delete ${key}`), 'DELETED', 'NOT_FOUND');
  }

  async statistics(group = ''): Promise<Readonly<Record<string, string>>> {
    return (await this.#command(`stats ${group}`.trim(), { isStats: true })) as Record<string, string>;
  }

  close(): void {
    this.#onEnd = undefined;
    void this.node.disconnect();
  }

  async #refuseOld(): Promise<void> {
    refuseOlder('MemcachedLockProvider', 'memcached', String(await this.#command('version')), OLDEST);
    try {
      await this.#command('mn');
    } catch (cause) {
      if (!(cause instanceof Error) || !cause.message.startsWith('ERROR')) throw cause;
      throw new LockConfigError(
        'MemcachedLockProvider cannot use this server: it has no meta commands, as a proxy may not.',
        { cause },
      );
    }
  }

  async #command(text: string, options?: CommandOptions): Promise<unknown> {
    const reply = await this.#within(this.node.command(text, options));
    // Servers before 1.6.18 end some replies with a space.
    return typeof reply === 'string' ? reply.trimEnd() : reply;
  }

  /** A server that is silent for too long has failed, and with it all commands that are in flight on this connection. */
  #within<T>(answer: Promise<T>): Promise<T> {
    return withTimeout(this.clock, this.commandTimeout, answer, () => {
      const cause = new Error('The server did not answer in time.');
      this.#end(cause);
      void this.node.disconnect();
      throw cause;
    });
  }

  #end(cause: unknown): void {
    const listener = this.#onEnd;
    this.#onEnd = undefined;
    listener?.(cause);
  }
}

function decide(reply: unknown, yes: string, ...no: readonly unknown[]): boolean {
  if (reply === yes) return true;
  if (no.includes(reply)) return false;
  // Such as "SERVER_ERROR out of memory": nothing was written, but the key is not known to be busy.
  throw new Error(`The server answered ${String(reply).slice(0, 80)}`);
}

async function loadClient(): Promise<Client> {
  try {
    // An optional peer: imported only by applications that use this provider.
    return (await import(CLIENT)) as Client;
  } catch (cause) {
    throw new LockConfigError('MemcachedLockProvider needs the package "memcache": npm install memcache.', { cause });
  }
}
