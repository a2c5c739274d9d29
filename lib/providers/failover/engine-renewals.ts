import type { ProviderContext, Renewal, RenewOutcome, Timer } from '../../engine/lock-provider.js';
import type { Engine } from './engine.js';
import type { Placement } from './placement.js';

/** What is to be renewed at its engine. */
export interface DueRenewal {
  readonly placement: Placement;
  readonly renewal: Renewal;
}

// How long those that one engine has renewed are told late, for the sake of those of a slower one: of the time that they
// still have. As in the renewals of a combined lock.
const PATIENCE = 0.25;

/** Renewals at the engines. A slow engine is not waited for without end: what it answers late counts from then on. */
export class EngineRenewals {
  constructor(
    /**
     * For how many ms an answer is waited for. `Infinity` where nothing but that answer keeps a lock: there an engine keeps only
     * those waiting that another one has renewed, and not for long.
     */
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
    const answers = [...due].map(async ([engine, ofEngine]) => {
      for (const { placement } of ofEngine) outcomes.set(placement, 'unknown');
      const answered = await engine.renew(ofEngine.map(({ renewal }) => renewal));
      let believedUntil = Infinity;
      ofEngine.forEach(({ placement }, index) => {
        const outcome = answered[index] ?? 'unknown';
        outcomes.set(placement, outcome);
        if (typeof outcome === 'object') {
          placement.renewed(outcome.validUntil, suspensions);
          believedUntil = Math.min(believedUntil, placement.believedUntil);
        }
        if (isLate && outcome === 'lost') this.context.emit({ type: 'lost', holder: placement.attempt.holder });
      });
      return believedUntil;
    });
    if (answers.length > 0) await this.#inTime(answers);
    isLate = true;
    return outcomes;
  }

  /** @param answers each resolves to until when those are believed that were renewed; `Infinity` for none. */
  #inTime(answers: readonly Promise<number>[]): Promise<void> {
    const { clock } = this.context;
    return new Promise((resolve) => {
      let timer: Timer | undefined;
      let endsAt = Infinity;
      const end = () => {
        if (timer) clock.clearTimer(timer);
        endsAt = -Infinity;
        resolve();
      };
      const endBy = (time: number) => {
        if (time >= endsAt) return;
        if (timer) clock.clearTimer(timer);
        endsAt = time;
        timer = clock.setTimer(end, Math.max(0, time - clock.now()));
      };
      endBy(clock.now() + this.patience);
      for (const answer of answers) {
        void answer.then((believedUntil) => {
          const now = clock.now();
          if (this.patience === Infinity) endBy(now + PATIENCE * (believedUntil - now));
        });
      }
      void Promise.all(answers).then(end);
    });
  }
}
