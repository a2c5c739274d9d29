import { type Renewal as RenewalRequest, type RenewOutcome, validUntil } from '../../engine/lock-provider.js';
import type { Cohort } from './cohort.js';
import { LIGHT } from './dispatcher.js';
import { type Operation, type OperationArguments, readHeld, wholeMs } from './operation.js';

/** Prolongs a hold; of a lock that was handed over, the first renewal is the confirmation. */
export class Renewal implements Operation {
  readonly isAsk = false;
  readonly weight = LIGHT;
  readonly #prolongation: number;

  constructor(
    readonly lock: string,
    private readonly request: RenewalRequest,
    private readonly cohort: Cohort | undefined,
    now: number,
    private readonly onOutcome: (outcome: RenewOutcome) => void,
  ) {
    this.#prolongation = cohort?.prolonging(request.lease, now) ?? 0;
  }

  encode(): OperationArguments {
    return ['C', this.cohort?.name ?? this.request.grant.holder, wholeMs(this.request.lease)];
  }

  onReply(reply: unknown, sentAt: number): void {
    const held = readHeld(reply, this.request.lease);
    if (held) {
      // Granted to us twice: the claim had run out and we were served again. The token in use was overtaken in between.
      const isOurs = held.token === (this.cohort?.token ?? this.request.grant.fencingToken);
      if (isOurs) this.#renewed(validUntil(sentAt, Math.min(held.left, this.request.lease)));
      else this.#lost();
    } else if (reply === 0) this.#lost();
    else this.onOutcome('unknown');
  }

  onFailure(): void {
    this.onOutcome('unknown');
  }

  #renewed(until: number): void {
    this.cohort?.prolonged(this.#prolongation, until);
    this.onOutcome({ validUntil: until });
  }

  #lost(): void {
    this.cohort?.dissolve();
    this.onOutcome('lost');
  }
}
