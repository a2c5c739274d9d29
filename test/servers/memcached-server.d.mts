/** A memcached server for a single test file. */
export interface MemcachedServer {
  readonly port: number;
  /** The address in the provider's format. */
  readonly address: string;
  /** Sends a signal to the server, such as SIGSTOP or SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Kills the server and restarts it on the same port. */
  crash(): Promise<void>;
  /** Sends one line over a separate connection and returns the first line of the response. */
  command(line: string): Promise<string>;
  /** The keys of all items. */
  keys(): Promise<string[]>;
  stop(): Promise<void>;
}

/** Starts memcached (from the PATH) on a free loopback port. */
export function startMemcached(options?: { readonly args?: readonly string[] }): Promise<MemcachedServer>;
