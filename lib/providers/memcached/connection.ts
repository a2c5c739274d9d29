import type { Clock } from '../../api/clock.js';
import { LockConfigError } from '../../api/errors.js';
import { refuseOlder } from '../shared/oldest-version.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import type { MemcachedSettings } from './memcached-options.js';

/** An item as read from the server. */
export interface Item {
  readonly value: string;
  /** Changes with every write to the key. */
  readonly cas: string;
  /** Remaining time to live, in whole seconds. */
  readonly seconds: number;
}

/** The part of a `memcache` node that we use. The package's own types depend on DOM types. */
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

// Older servers respond to the meta commands differently, so no lock would ever be granted.
const OLDEST = '1.6.10';

const CLIENT: string = 'memcache';

// The client closes connections that are idle for longer than its timeout, so this is the longest timer delay that Node
// supports.
const NO_IDLE_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * A single connection, from open to close. It never reconnects, so it can't mistake a reply meant for an earlier
 * connection for its own.
 *
 * It uses a node of the `memcache` package, one layer below that package's cache. The cache reports a failed command
 * like a rejected one (`add` returns false, `get` undefined) and doesn't expose CAS ids.
 */
export class Connection {
  #onEnd: ((cause: unknown) => void) | undefined;

  private constructor(
    private readonly node: Node,
    private readonly clock: Clock,
    private readonly commandTimeout: number,
  ) {}

  /**
   * @throws LockConfigError if the package is missing or the server is too old; the client's own error if it can't
   * connect
   */
  static async open({ host, port, commandTimeout }: MemcachedSettings, clock: Clock): Promise<Connection> {
    const client = await loadClient();
    const node = client.createNode(host, port, { timeout: NO_IDLE_TIMEOUT_MS });
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

  /** Calls `listener` once, when the connection ends for any reason other than {@link close}. */
  onEnd(listener: (cause: unknown) => void): void {
    this.#onEnd = listener;
  }

  /** Adds the item. Returns false if the key already has one. */
  async add(key: string, value: string, seconds: number): Promise<boolean> {
    const reply = await this.#command(`add ${key} 0 ${seconds} ${value.length}\r\n${value}`);
    return decide(reply, 'STORED', false);
  }

  /** Writes the item, unless it has changed since it was read. */
  async replace(key: string, { cas }: Item, value: string, seconds: number): Promise<boolean> {
    const reply = await this.#command(`cas ${key} 0 ${seconds} ${value.length} ${cas}\r\n${value}`);
    return decide(reply, 'STORED', 'EXISTS', 'NOT_FOUND');
  }

  /** Deletes the item, unless it has changed since it was read. */
  async delete(key: string, { cas }: Item): Promise<boolean> {
    return decide(await this.#command(`md ${key} C${cas}`), 'HD', 'EX', 'NF');
  }

  /**
   * Reads the CAS id before the value, because the client can't read both in one command. A write with this id
   * therefore replaces exactly this value or fails.
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

  /** Deletes the item regardless of its value. Returns whether it existed. */
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
        'MemcachedLockProvider cannot use this server: it does not support meta commands. If it is a proxy, connect to memcached directly.',
        { cause },
      );
    }
  }

  async #command(text: string, options?: CommandOptions): Promise<unknown> {
    const reply = await this.#within(this.node.command(text, options));
    // Servers older than 1.6.18 end some replies with a space.
    return typeof reply === 'string' ? reply.trimEnd() : reply;
  }

  /** A timeout fails the whole connection and every command in flight on it. */
  #within<T>(answer: Promise<T>): Promise<T> {
    return withTimeout(this.clock, this.commandTimeout, answer, () => {
      const cause = new Error('The server did not respond in time.');
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
  // For example, "SERVER_ERROR out of memory": nothing was written, but that doesn't mean the key is busy.
  throw new Error(`The server responded with ${String(reply).slice(0, 80)}`);
}

async function loadClient(): Promise<Client> {
  try {
    // Optional peer dependency: only applications that use this provider install it.
    return (await import(CLIENT)) as Client;
  } catch (cause) {
    throw new LockConfigError('MemcachedLockProvider needs the "memcache" package: npm install memcache.', { cause });
  }
}
