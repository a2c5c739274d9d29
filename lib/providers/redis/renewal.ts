import type { RenewOutcome } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { LIGHT, type Operation } from './batcher.js';
import { type OperationArguments, readHeld } from './wire.js';

/** A renewal of what was granted with the last of the tokens `token`, to `lease` ms. */
export class Renewal implements Operation {
  readonly weight = LIGHT;

  constructor(
    readonly lock: string,
    private readonly fields: OperationArguments,
    private readonly token: bigint,
    private readonly lease: number,
    private readonly resolve: (outcome: RenewOutcome) => void,
  ) {}

  encode(): OperationArguments {
    return this.fields;
  }

  onReply(reply: unknown, sentAt: number): void {
    const held = readHeld(reply, this.lease);
    // Another token: the provisional lease had run out and the lock was granted to us again. The tokens in use are overtaken.
    if (held?.token === this.token) this.resolve({ validUntil: validUntil(sentAt, Math.min(held.left, this.lease)) });
    else this.resolve(held || reply === 0 ? 'lost' : 'unknown');
  }

  onFailure(): void {
    this.resolve('unknown');
  }
}
