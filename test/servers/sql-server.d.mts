/** A database server for a single test file or script. */
export interface SqlServer {
  readonly port: number;
  readonly folder: string;
  readonly url: string;
  readonly pid: number;
  /** The end of the server's log. */
  readonly output: string;
  /** Sends a signal, such as SIGSTOP or SIGCONT, to all processes of the server. */
  signal(name: NodeJS.Signals): void;
  /** Kills the server and restarts it with the same port and folder. */
  crash(options?: { downFor?: number }): Promise<void>;
  stop(): Promise<void>;
}

export interface MySqlSettings {
  readonly options?: readonly string[];
  /** The address to listen on. By default, a free port of 127.0.0.1. */
  readonly place?: { readonly address: string; readonly port: number };
}

/**
 * Starts MySQL, or MariaDB if MySQL isn't installed, on a free loopback port in a temporary folder, with a database
 * `test`. The URL's protocol shows which one it is.
 */
export function startMySqlOrMariaDb(settings?: MySqlSettings): Promise<SqlServer>;

/** Whether `startMySqlOrMariaDb` starts MySQL. */
export function hasMySql(): boolean;

/** Starts MariaDB (mariadbd from the PATH) on a free loopback port in a temporary folder, with a database `test`. */
export function startMariaDb(settings?: MySqlSettings): Promise<SqlServer>;

/** Starts MariaDB as the only node of a Galera cluster (libgalera_smm.so, which Debian installs with the server). */
export function startGaleraNode(): Promise<SqlServer>;

/**
 * Starts PgBouncer on a free loopback port, in front of the Postgres server on this port. Pools by transaction by
 * default.
 */
export function startPgBouncer(port: number, mode?: 'session' | 'transaction'): Promise<SqlServer>;

/**
 * Starts Postgres (from the PATH or Debian's folder) on a free loopback port in a temporary folder. Listens on these
 * addresses, by default on 127.0.0.1.
 */
export function startPostgres(settings?: { addresses?: readonly string[] }): Promise<SqlServer>;

/** A synchronous standby: its primary waits for it on every COMMIT. */
export type PostgresStandby = SqlServer & {
  /** Makes it writable without notifying the primary, which may still be running. */
  promote(): Promise<void>;
};

/**
 * Starts a standby of this Postgres server and makes the primary wait for it on every COMMIT. It replicates from the
 * primary, or from `sourcePort`: a proxy in front of the primary that a test can cut off.
 */
export function startPostgresStandby(
  primary: SqlServer,
  settings?: { readonly sourcePort?: number; readonly addresses?: readonly string[] },
): Promise<PostgresStandby>;
