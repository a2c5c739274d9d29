import { type Grant, type RenewOutcome } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
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
    private readonly grant: Grant,
    private readonly lease: number,
    private readonly cohort: Cohort | undefined,
    now: number,
    private readonly onOutcome: (outcome: RenewOutcome) => void,
  ) {
    this.#prolongation = cohort?.prolonging(lease, now) ?? 0;
  }

  encode(): OperationArguments {
    return ['C', this.cohort?.name ?? this.grant.holder, wholeMs(this.lease)];
  }

  onReply(reply: unknown, sentAt: number): void {
    const held = readHeld(reply, this.lease);
    if (held) {
      // Granted to us twice: the claim had run out and we were served again. The token in use was overtaken in between.
      const isOurs = held.token === (this.cohort?.token ?? this.grant.fencingToken);
      if (isOurs) this.#renewed(validUntil(sentAt, Math.min(held.left, this.lease)));
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
