/** A database server of our own, alone for one test file or one script. */
export interface SqlServer {
  readonly port: number;
  readonly folder: string;
  readonly url: string;
  readonly pid: number;
  /** The end of its log. */
  readonly output: string;
  /** Sends a signal to all processes of the server, such as SIGSTOP and SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Ends the server without a farewell and starts it again with the same port and folder. */
  crash(options?: { downFor?: number }): Promise<void>;
  stop(): Promise<void>;
}

export interface MySqlSettings {
  readonly options?: readonly string[];
  /** Where it listens. A free port of 127.0.0.1 unless noted otherwise. */
  readonly place?: { readonly address: string; readonly port: number };
}

/**
 * Starts a MySQL on a free loopback port, in a temporary folder, with a database `test`; a MariaDB, where there is no MySQL. The protocol of
 * its URL says which it is.
 */
export function startMySqlOrMariaDb(settings?: MySqlSettings): Promise<SqlServer>;

/** Whether `startMySqlOrMariaDb` starts a MySQL. */
export function hasMySql(): boolean;

/** Starts a MariaDB (mariadbd from the PATH) on a free loopback port, in a temporary folder, with a database `test`. */
export function startMariaDb(settings?: MySqlSettings): Promise<SqlServer>;

/** Starts a MariaDB as the only node of a Galera cluster (libgalera_smm.so, which Debian installs with the server). */
export function startGaleraNode(): Promise<SqlServer>;

/** Starts a PgBouncer on a free loopback port, which pools connections to the Postgres on this port by transaction. */
export function startPgBouncer(port: number, mode?: 'session' | 'transaction'): Promise<SqlServer>;

/**
 * Starts a Postgres (from the PATH or from Debian's folder) on a free loopback port, in a temporary folder. It listens on these addresses,
 * by default on 127.0.0.1.
 */
export function startPostgres(settings?: { addresses?: readonly string[] }): Promise<SqlServer>;

/** A standby, for which its primary waits at every COMMIT. */
export type PostgresStandby = SqlServer & {
  /** Makes it writable, without a farewell to the primary, which may still run. */
  promote(): Promise<void>;
};

/**
 * Starts a standby of this Postgres and makes the primary wait for it at every COMMIT. It replicates from the primary, or from `sourcePort`:
 * the port of a proxy in front of the primary, which a test cuts off.
 */
export function startPostgresStandby(
  primary: SqlServer,
  settings?: { readonly sourcePort?: number },
): Promise<PostgresStandby>;
