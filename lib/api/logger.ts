/** Where the core and the backends report. Keys may appear in messages, on one line; holder ids, URLs and passwords never do. */
export interface LockLogger {
  debug(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** Logs nothing. */
export const silentLogger: LockLogger = { debug() {}, warn() {}, error() {} };
