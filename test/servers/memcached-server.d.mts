/** A memcached of our own, alone for one test file. */
export interface MemcachedServer {
  readonly port: number;
  /** As the provider takes it. */
  readonly address: string;
  /** Sends a signal to the server, such as SIGSTOP and SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Ends the server without a farewell and starts it again with the same port. */
  crash(): Promise<void>;
  /** Sends one line by a connection of its own, and gives the first line of the answer. */
  command(line: string): Promise<string>;
  /** The keys of all items. */
  keys(): Promise<string[]>;
  stop(): Promise<void>;
}

/** Starts a memcached (from the PATH) on a free loopback port. */
export function startMemcached(options?: { readonly args?: readonly string[] }): Promise<MemcachedServer>;
