/** The only source of randomness. Injected, so that a run can be repeated from a seed. */
export interface Random {
  /** 128 random bits as 32 hexadecimal digits. A holder's id is enough to release its lock, so it must not be guessable. */
  id(): string;
  /** A number in [0, 1), for jitter. */
  fraction(): number;
}
