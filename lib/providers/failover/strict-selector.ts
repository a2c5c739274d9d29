import type { ProviderContext, Records } from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { LockUnavailableError } from '../../api/errors.js';
import type { Choice, EngineSelector, Outlook, Position, SwitchListener } from './engine-selector.js';
import { Fleet } from './fleet.js';
import { asItIs, SharedRecord } from './shared-record.js';
import { type SwitchReason, type SwitchRecord, switched } from './switch-record.js';

/** All times in ms. */
export interface StrictTerms {
  /** How long a confirmation is good for. */
  readonly window: number;
  /** How long the preferred engine stays away at the first time. Doubled with each return. */
  readonly minStay: number;
}

// Confirmed several times in each window, so that one or two lost answers cost nothing.
const ROUNDS_PER_WINDOW = 5;
const LONGEST_STAY = 3_600_000;

/**
 * Mode `strict`: all processes follow one record, by the rule of `Agreement`. Several times in each window this
 * process confirms it; less often it tells the {@link Fleet} which engines do not answer.
 *
 * An engine is left when it answers neither this process nor most of those that are there; whoever alone cannot reach
 * it fails closed. Who cannot reach the record fails closed too.
 */
export class StrictSelector implements EngineSelector {
  readonly #record: SharedRecord;
  readonly #fleet: Fleet;
  #choice: Choice | undefined;
  #looking: Promise<void> = Promise.resolve();
  #isLookDue = false;
  #timer: Timer | undefined;
  #stopped = false;
  #onStopped: (() => void) | undefined;

  constructor(
    private readonly context: ProviderContext,
    private readonly terms: StrictTerms,
    records: Records,
    private readonly outlook: Outlook,
    onSwitch: SwitchListener,
  ) {
    const { clock, random, name } = context;
    const [preferred = ''] = outlook.keys();
    this.#record = new SharedRecord(context, terms.window, records, preferred, {
      switched: onSwitch,
      suspended: () => {
        this.review();
      },
    });
    this.#fleet = new Fleet(records, `${name}:fleet`, random.id(), terms.window, clock);
  }

  async start(): Promise<void> {
    try {
      // The first write of all may have to wait for a connection and a table.
      await this.#record.amend(asItIs, this.terms.window);
      await this.#look();
    } finally {
      this.#schedule();
    }
    await this.#settling();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#onStopped?.();
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    await Promise.all([this.#record.stop(), this.#looking]);
  }

  choose(now: number): Choice {
    const agreement = this.#record.agreementAt(now);
    const { record, settlesAt } = agreement;
    if (!record || now >= agreement.validUntil(record.epoch)) {
      throw this.#unavailable('cannot confirm the record on which its processes agree', this.#record.trouble);
    }
    if (!this.outlook.has(record.active)) {
      throw this.#unavailable(
        `is on "${record.active}" in other processes, which is not among the engines of this one`,
      );
    }
    if (now < settlesAt) {
      throw this.#unavailable(
        `has gone over to "${record.active}" and waits ${Math.ceil(settlesAt - now)} ms for the last locks from before`,
      );
    }
    if (this.#choice?.epoch !== record.epoch) this.#choice = { epoch: record.epoch, engine: record.active };
    return this.#choice;
  }

  validUntil(epoch: number, now: number): number {
    return this.#record.agreementAt(now).validUntil(epoch);
  }

  confirm(): Promise<boolean> {
    return this.#record.confirm();
  }

  review(): void {
    // Before the first write there is nothing to act upon.
    if (this.#record.agreement.record) void this.#round();
  }

  switchTo(engine: string): Promise<void> {
    return this.#record.amend((record) =>
      record.active === engine ? { ...record, pinned: true } : this.#to(engine, 'manual', record),
    );
  }

  get position(): Position {
    const { record } = this.#record.agreement;
    return { active: record?.active ?? null, epoch: record?.epoch ?? 0, history: record?.history ?? [] };
  }

  #schedule(): void {
    if (this.#stopped) return;
    // Not all processes at once.
    const delay = (this.terms.window / ROUNDS_PER_WINDOW) * (0.75 + this.context.random.fraction() / 2);
    this.#timer = this.context.clock.setTimer(() => {
      void this.#round().then(() => {
        this.#schedule();
      });
    }, delay);
  }

  /** Confirms, and if that was answered begins to look whether an engine is to be left. */
  async #round(): Promise<void> {
    if (await this.#record.confirm()) void this.#look();
  }

  /**
   * One after the other, and not in turn with what confirms: all processes meet at the report, so that it takes several tries, and
   * locks must not wait for it (seen: ten processes lost theirs on a record that took a tenth of a window for each write).
   */
  #look(): Promise<void> {
    if (this.#isLookDue) return this.#looking;
    this.#isLookDue = true;
    // One that is not answered in time is made up for by the next.
    this.#looking = this.#looking.then(() => this.#leaveWhatFails()).catch(() => undefined);
    return this.#looking;
  }

  /** The locks of an application that starts can be had when it has started. */
  async #settling(): Promise<void> {
    const { clock } = this.context;
    const remaining = () => this.#record.agreement.settlesAt - clock.now();
    // Timers count in whole ms and may be a part of one early.
    for (let wait = remaining(); wait > 0 && !this.#stopped; wait = remaining()) {
      let timer: Timer | undefined;
      await new Promise<void>((resolve) => {
        this.#onStopped = resolve;
        timer = clock.setTimer(resolve, Math.ceil(wait), true);
      });
      if (timer) clock.clearTimer(timer);
    }
  }

  async #leaveWhatFails(): Promise<void> {
    this.#isLookDue = false;
    if (this.#stopped) return;
    const down = [...this.outlook].filter(([, { state }]) => state === 'down').map(([name]) => name);
    await this.#fleet.report(down, this.#record.patience);
    const { epoch } = this.#record.agreement;
    const due = this.#destination(this.context.clock.now());
    // Unless another process has switched meanwhile.
    if (!due) return;
    const change = (record: SwitchRecord) => (record.epoch === epoch ? this.#to(due.to, due.reason, record) : record);
    await this.#record.amend(change);
  }

  #destination(now: number): { to: string; reason: SwitchReason } | undefined {
    const { record, learnedAt } = this.#record.agreement;
    if (!record) return undefined;
    const { active, returns, pinned } = record;
    const names = [...this.outlook.keys()];
    if (this.#state(active) === 'down' && this.#fleet.mostMiss(active)) {
      const to = names.find((name) => this.#state(name) !== 'down' && !this.#fleet.mostMiss(name));
      return to === undefined ? undefined : { to, reason: 'failure' };
    }
    if (pinned) return undefined;
    const stay = Math.min(this.terms.minStay * 2 ** returns, LONGEST_STAY);
    if (now < learnedAt + stay) return undefined;
    const better = names.slice(0, Math.max(0, names.indexOf(active)));
    const to = better.find((name) => this.#state(name) === 'up' && !this.#fleet.anyMisses(name));
    return to === undefined ? undefined : { to, reason: 'return' };
  }

  #to(engine: string, reason: SwitchReason, record: SwitchRecord): SwitchRecord {
    const { clock, random } = this.context;
    return switched(record, engine, reason, { id: random.id(), at: clock.wallTime() });
  }

  #state(engine: string) {
    return this.outlook.get(engine)?.state;
  }

  #unavailable(what: string, cause?: unknown): LockUnavailableError {
    const { name } = this.context;
    // No engine was asked.
    return new LockUnavailableError(`Lock provider "${name}" ${what}.`, { provider: name, cause, sent: false });
  }
}
