import { type Renewal as RenewalRequest, type RenewOutcome, validUntil } from '../../engine/lock-provider.js';
import { LIGHT } from './dispatcher.js';
import { type Operation, type OperationArguments, readHeld, wholeMs } from './operation.js';

/** Prolongs a hold; of a lock that was handed over, the first renewal is the confirmation. */
export class Renewal implements Operation {
  readonly isAsk = false;
  readonly weight = LIGHT;

  constructor(
    readonly lock: string,
    private readonly request: RenewalRequest,
    private readonly onOutcome: (outcome: RenewOutcome) => void,
  ) {}

  encode(): OperationArguments {
    return ['C', this.request.grant.holder, wholeMs(this.request.lease)];
  }

  onReply(reply: unknown, sentAt: number): void {
    const held = readHeld(reply, this.request.lease);
    if (held) {
      // Granted to us twice: the claim had run out and we were served again. The token in use was overtaken in between.
      const isOurs = held.token === this.request.grant.fencingToken;
      this.onOutcome(isOurs ? { validUntil: validUntil(sentAt, Math.min(held.left, this.request.lease)) } : 'lost');
    } else this.onOutcome(reply === 0 ? 'lost' : 'unknown');
  }

  onFailure(): void {
    this.onOutcome('unknown');
  }
}
