/** The process's exit codes. */
export const ExitCode = {
  done: 0,
  /** The key is free, nothing was freed, or `doctor` found something, such as a rejected connection. */
  negative: 1,
  /** Invalid arguments or configuration, or the server rejected the command. */
  usage: 2,
  /** The server doesn't respond. */
  unavailable: 3,
} as const;
export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

/** Invalid arguments, or an invalid config file. */
export class UsageError extends Error {}
