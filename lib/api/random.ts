/** The only source of randomness. It's injected so that a test run can be repeated from a seed. */
export interface Random {
  /**
   * 128 random bits as 32 hexadecimal digits. They must not be guessable, because a holder id is enough to release its
   * lock.
   */
  id(): string;
  /** A number in [0, 1), for jitter. */
  fraction(): number;
}
