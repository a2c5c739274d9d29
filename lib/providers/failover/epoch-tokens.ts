import { LockConfigError } from '../../api/errors.js';
import type { Choice } from './engine-selector.js';

/** Room for the tokens of one epoch: a hybrid clock in µs stays below until the year 2112, a czxid for 2^20 elections. */
const TOKENS_PER_EPOCH = 2n ** 52n;

/** Fencing tokens that grow with every switch, and within an epoch as those of its engine do. */
export class EpochTokens {
  #epoch = 0;
  /** The token before the first of that epoch. */
  #before = 0n;

  constructor(private readonly provider: string) {}

  /** @throws LockConfigError for a token of the engine that would not stay below those of the next epoch. */
  tokenOf(token: bigint | null, { epoch, engine }: Choice): bigint | null {
    if (token === null) return null;
    if (this.#epoch !== epoch) {
      this.#epoch = epoch;
      this.#before = BigInt(epoch) * TOKENS_PER_EPOCH;
    }
    if (token >= 0n && token < TOKENS_PER_EPOCH) return this.#before + token;
    throw new LockConfigError(
      `The fencing token ${token} of engine "${engine}" does not fit between those of two switches: use another engine.`,
      { provider: this.provider },
    );
  }
}
