/** A ZooKeeper server for a single test file or script. */
export interface ZooKeeperServer {
  /** The client port. */
  readonly port: number;
  readonly folder: string;
  readonly connectString: string;
  readonly pid: number;
  /** Sends a signal to the server, such as SIGSTOP or SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Sends a four-letter word (`srvr`, `mntr`, `cons`, `dump`, `wchp`) and returns the response. */
  ask(word: string): Promise<string>;
  /** Kills the server. */
  kill(): Promise<void>;
  /** Restarts it after `kill`, with the same port and folder. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface ZooKeeperOptions {
  /**
   * The server's time unit in ms (200). The minimum session timeout is two ticks, and sessions end within one tick of
   * their timeout.
   */
  readonly tickTime?: number;
  /** Whether writes wait for the disk, as in production (false). */
  readonly forceSync?: boolean;
  /** Enables the account `super`, which bypasses ACLs, with this password. */
  readonly superPassword?: string;
  /** Additional lines of zoo.cfg. */
  readonly config?: Readonly<Record<string, string | number>>;
  /** Additional system properties, such as `znode.container.checkIntervalMs`. */
  readonly properties?: Readonly<Record<string, string | number>>;
}

/** Starts ZooKeeper (java from the PATH, Debian's jars) on a free loopback port in a temporary folder. */
export function startZooKeeper(options?: ZooKeeperOptions): Promise<ZooKeeperServer>;

/**
 * Prepares a ZooKeeper server that `restart` starts. An ensemble must start all servers before the first one responds.
 */
export function prepareZooKeeper(options?: ZooKeeperOptions): Promise<ZooKeeperServer>;
