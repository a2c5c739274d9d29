/** A redis-server of our own, alone for one test file or one script. */
export interface RedisServer {
  readonly port: number;
  readonly folder: string;
  readonly url: string;
  readonly pid: number;
  /** Sends a signal to the server, such as SIGSTOP and SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Ends the server without a farewell and starts it again with the same port and folder. */
  crash(options?: { readonly downFor?: number }): Promise<void>;
  stop(): Promise<void>;
}

/** Starts a redis-server (from the PATH) on a free loopback port, in a temporary folder, without persistence by default. */
export function startRedisServer(options?: {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Start a Sentinel, with this configuration. */
  readonly sentinel?: string;
}): Promise<RedisServer>;
