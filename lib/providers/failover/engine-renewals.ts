import type { ProviderContext, Renewal, RenewOutcome } from '../../engine/lock-provider.js';
import type { Engine } from './engine.js';
import { inTime } from './in-time.js';
import type { Placement } from './placement.js';

/** What is to be renewed at its engine. */
export interface DueRenewal {
  readonly placement: Placement;
  readonly renewal: Renewal;
}

/** Renewals at the engines. A slow engine is not waited for without end: what it answers late counts from then on. */
export class EngineRenewals {
  constructor(
    /** For how many ms an answer is waited for; `Infinity` where nothing but that answer keeps a lock. */
    private readonly patience: number,
    private readonly context: Pick<ProviderContext, 'clock' | 'emit'>,
  ) {}

  /** What has become of each in time, sent after so many suspensions. */
  async send(
    due: ReadonlyMap<Engine, readonly DueRenewal[]>,
    suspensions: number,
  ): Promise<ReadonlyMap<Placement, RenewOutcome>> {
    const outcomes = new Map<Placement, RenewOutcome>();
    let isLate = false;
    const answered = [...due].map(async ([engine, ofEngine]) => {
      for (const { placement } of ofEngine) outcomes.set(placement, 'unknown');
      const answers = await engine.renew(ofEngine.map(({ renewal }) => renewal));
      ofEngine.forEach(({ placement }, index) => {
        const outcome = answers[index] ?? 'unknown';
        outcomes.set(placement, outcome);
        if (typeof outcome === 'object') placement.renewed(outcome.validUntil, suspensions);
        if (isLate && outcome === 'lost') this.context.emit({ type: 'lost', holder: placement.attempt.holder });
      });
    });
    await this.#inTime(Promise.all(answered));
    isLate = true;
    return outcomes;
  }

  async #inTime(answers: Promise<unknown>): Promise<void> {
    if (this.patience === Infinity) await answers;
    else await inTime(answers, this.patience, this.context.clock).catch(() => undefined);
  }
}
