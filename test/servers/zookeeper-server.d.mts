/** A ZooKeeper of our own, alone for one test file or one script. */
export interface ZooKeeperServer {
  /** Of its clients. */
  readonly port: number;
  readonly folder: string;
  readonly connectString: string;
  readonly pid: number;
  /** Sends a signal to the server, such as SIGSTOP and SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Asks it with one of its four-letter words: `srvr`, `mntr`, `cons`, `dump`, `wchp` … */
  ask(word: string): Promise<string>;
  /** Ends the server without a farewell. */
  kill(): Promise<void>;
  /** Starts it again after `kill`, with the same port and folder. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface ZooKeeperOptions {
  /** The server's unit of time, in ms (200). Sessions may be as short as two of them, and end within one of them of their time-out. */
  readonly tickTime?: number;
  /** Whether a write waits for the disk, as it does in production (false). */
  readonly forceSync?: boolean;
  /** Opens the account `super`, whom no ACL stops, with this password. */
  readonly superPassword?: string;
  /** Further lines of zoo.cfg. */
  readonly config?: Readonly<Record<string, string | number>>;
  /** Further system properties, such as `znode.container.checkIntervalMs`. */
  readonly properties?: Readonly<Record<string, string | number>>;
}

/** Starts a ZooKeeper (java from the PATH, Debian's jars) on a free loopback port, in a temporary folder. */
export function startZooKeeper(options?: ZooKeeperOptions): Promise<ZooKeeperServer>;

/** Prepares a ZooKeeper that is started by `restart`: an ensemble must start all its servers before the first one answers. */
export function prepareZooKeeper(options?: ZooKeeperOptions): Promise<ZooKeeperServer>;
