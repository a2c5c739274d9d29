/** The answer of a command to the program that has started it. */
export const ExitCode = {
  done: 0,
  /** The key is free, nothing was freed, or `doctor` has found something, which a refusal of its connection is as well. */
  negative: 1,
  /** The arguments or the configuration cannot work. */
  misuse: 2,
  /** The server does not answer. */
  unavailable: 3,
} as const;
export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

/** The arguments or the file of the configuration cannot work. */
export class Misuse extends Error {}
