/** A Redis server for a single test file or script. */
export interface RedisServer {
  readonly port: number;
  readonly folder: string;
  readonly url: string;
  readonly pid: number;
  /** Sends a signal to the server, such as SIGSTOP or SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Kills the server and restarts it with the same port and folder. */
  crash(options?: { readonly downFor?: number }): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts redis-server (from the PATH) on a free loopback port in a temporary folder, by default without persistence.
 */
export function startRedisServer(options?: {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Starts a Sentinel with this configuration instead. */
  readonly sentinel?: string;
}): Promise<RedisServer>;
