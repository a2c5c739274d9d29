/**
 * Logs messages from the core and the backends. Each message is one line and may contain keys, but never holder ids,
 * URLs, or passwords.
 */
export interface LockLogger {
  debug(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** A logger that does nothing. */
export const silentLogger: LockLogger = { debug() {}, warn() {}, error() {} };
