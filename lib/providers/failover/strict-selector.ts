import { type ProviderContext, type Records, SuspensionDetector, type Timer } from '../../engine/lock-provider.js';
import { LockError, LockUnavailableError } from '../../lock/errors.js';
import { Agreement } from './agreement.js';
import type { Choice, EngineSelector, Outlook, Position, SwitchListener } from './engine-selector.js';
import { Fleet } from './fleet.js';
import { inTime } from './in-time.js';
import {
  firstRecord,
  readRecord,
  type SwitchReason,
  type SwitchRecord,
  switched,
  writeRecord,
} from './switch-record.js';

/** All times in ms. */
export interface StrictTerms {
  /** How long a confirmation is good for. */
  readonly window: number;
  /** How long the preferred engine stays away at the first time. Doubled with each return. */
  readonly minStay: number;
}

// Confirmed several times in each window, so that one or two lost answers cost nothing.
const ROUNDS_PER_WINDOW = 5;
export const PATIENCE_PER_WINDOW = 3;
const LONGEST_STAY = 3_600_000;
// Reading the time since boot costs 1.4 µs, too much for each lock; it is counted in steps of 10 ms anyway.
const LOOK_FOR_SUSPENSION_EVERY = 10;

/**
 * Mode `strict`: all processes follow one record, by the rule of {@link Agreement}. Several times in each window this
 * process confirms it; less often it tells the {@link Fleet} which engines do not answer.
 *
 * An engine is left when it answers neither this process nor most of those that are there; whoever alone cannot reach
 * it fails closed. Who cannot reach the record fails closed too.
 */
export class StrictSelector implements EngineSelector {
  #agreement: Agreement;
  /** The record as it was last seen; `null` before there is one. */
  #text: string | null = null;
  readonly #fleet: Fleet;
  readonly #suspension: SuspensionDetector;
  /** How many suspensions of the machine what is known has taken into account. */
  #suspensions = 0;
  #choice: Choice | undefined;
  #turn: Promise<void> = Promise.resolve();
  /** Asked for, and not sent yet. */
  #confirmation: Promise<boolean> | undefined;
  #looking: Promise<void> = Promise.resolve();
  #isLookDue = false;
  #timer: Timer | undefined;
  #trouble: unknown;
  #stopped = false;
  #onStopped: (() => void) | undefined;

  constructor(
    private readonly context: ProviderContext,
    private readonly terms: StrictTerms,
    private readonly records: Records,
    private readonly outlook: Outlook,
    private readonly onSwitch: SwitchListener,
  ) {
    const { clock, random, name } = context;
    this.#agreement = Agreement.unknown(terms.window);
    this.#fleet = new Fleet(records, `${name}:fleet`, random.id(), terms.window, clock);
    this.#suspension = new SuspensionDetector(clock, LOOK_FOR_SUSPENSION_EVERY);
  }

  async start(): Promise<void> {
    try {
      // The first write of all may have to wait for a connection and a table.
      await this.#inTurn(() => this.#amend(asItIs, this.terms.window));
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
    await Promise.all([this.#turn, this.#looking]);
  }

  choose(now: number): Choice {
    this.#heed(this.#suspension.recent(now));
    const { record, settlesAt } = this.#agreement;
    if (!record || now >= this.#agreement.validUntil(record.epoch)) {
      throw this.#unavailable('cannot confirm the record on which its processes agree', this.#trouble);
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
    this.#heed(this.#suspension.recent(now));
    return this.#agreement.validUntil(epoch);
  }

  confirm(): Promise<boolean> {
    // One write is enough for all who ask before it is sent: after an outage those of many would have to follow each other.
    this.#confirmation ??= this.#inTurn(() => {
      this.#confirmation = undefined;
      return this.#amend(asItIs);
    }).then(
      () => true,
      () => false,
    );
    return this.#confirmation;
  }

  review(): void {
    // Before the first write there is nothing to act upon.
    if (this.#agreement.record) void this.#round();
  }

  switchTo(engine: string): Promise<void> {
    return this.#inTurn(() =>
      this.#amend((record) =>
        record.active === engine ? { ...record, pinned: true } : this.#to(engine, 'manual', record),
      ),
    );
  }

  get position(): Position {
    const { record } = this.#agreement;
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
    if (await this.confirm()) void this.#look();
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

  /** One after the other: a process that had two writes under way would not know which it confirms. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  /** The locks of an application that starts can be had when it has started. */
  async #settling(): Promise<void> {
    const { clock } = this.context;
    const remaining = () => this.#agreement.settlesAt - clock.now();
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
    await this.#fleet.report(down, this.#patience);
    const { epoch } = this.#agreement;
    const due = this.#destination(this.context.clock.now());
    // Unless another process has switched meanwhile.
    if (!due) return;
    const change = (record: SwitchRecord) => (record.epoch === epoch ? this.#to(due.to, due.reason, record) : record);
    await this.#inTurn(() => this.#amend(change));
  }

  #destination(now: number): { to: string; reason: SwitchReason } | undefined {
    const { record, learnedAt } = this.#agreement;
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

  /** Writes what `change` makes of the record, on whatever others make of it meanwhile. This confirms it. */
  async #amend(change: (record: SwitchRecord) => SwitchRecord, patience = this.#patience): Promise<void> {
    const { clock } = this.context;
    const { window } = this.terms;
    while (!this.#stopped) {
      this.#heed(this.#suspension.observe());
      const suspensions = this.#suspensions;
      const sentAt = clock.now();
      const record = this.#agreement.record ?? firstRecord(this.#preferred, window, this.context.random.id());
      const next = change({
        ...record,
        settled: record.settled || (this.#agreement.record !== undefined && sentAt >= this.#agreement.settlesAt),
        window: Math.max(record.window, window),
      });
      const text = writeRecord(next);
      if (next.epoch !== record.epoch) this.#agreement = this.#agreement.dropped();
      const found = await this.#write(text, patience);
      const now = clock.now();
      const seen = found === text ? next : this.#read(found);
      // Only what was understood is built upon: a record that was deleted must not rise again from what one process knows.
      this.#text = found;
      this.#heed(this.#suspension.observe());
      if (found === text && suspensions === this.#suspensions) {
        this.#follow(this.#agreement.confirmed(seen, sentAt, now));
        return;
      }
      this.#follow(this.#agreement.learned(seen, now));
    }
    throw this.#unavailable('is stopping');
  }

  async #write(text: string, patience: number): Promise<string | null> {
    try {
      const written = this.records.compareAndSet(this.context.name, this.#text, text);
      const found = await inTime(written, patience, this.context.clock);
      this.#trouble = undefined;
      return found;
    } catch (error) {
      this.#trouble = error;
      throw LockError.is(error) ? error : this.#unavailable('cannot write the record', error);
    }
  }

  /** The record that somebody else has written. */
  #read(found: string | null): SwitchRecord {
    const known = this.#agreement.record;
    const record = found === null ? undefined : readRecord(found);
    if (record && (!known || record.epoch > known.epoch || (record.epoch === known.epoch && record.id === known.id))) {
      return record;
    }
    const { clock, logger } = this.context;
    const wasConfirmed = clock.now() < this.#agreement.validUntil(this.#agreement.epoch);
    // What other processes hold by it cannot be known any more.
    this.#agreement = this.#agreement.dropped();
    const trouble = this.#unavailable(
      'found its record deleted, damaged or restored from the past: stop all instances, then start them again',
    );
    this.#trouble = trouble;
    if (wasConfirmed) logger.error(trouble.message);
    throw trouble;
  }

  #follow(agreement: Agreement): void {
    const before = this.#agreement;
    this.#agreement = agreement;
    const { epoch, record } = agreement;
    if (!record || epoch === before.epoch) return;
    this.onSwitch({ epoch, engine: record.active }, before.record && record.history.at(-1)?.reason);
  }

  /** While the machine was suspended the clock that all is counted on stood still, and others have gone on. */
  #heed(suspensions: number): void {
    if (suspensions === this.#suspensions) return;
    this.#suspensions = suspensions;
    this.#agreement = this.#agreement.dropped();
    this.review();
  }

  #to(engine: string, reason: SwitchReason, record: SwitchRecord): SwitchRecord {
    const { clock, random } = this.context;
    return switched(record, engine, reason, { id: random.id(), at: clock.wallTime() });
  }

  #state(engine: string) {
    return this.outlook.get(engine)?.state;
  }

  get #patience(): number {
    return this.terms.window / PATIENCE_PER_WINDOW;
  }

  get #preferred(): string {
    const [first = ''] = this.outlook.keys();
    return first;
  }

  #unavailable(what: string, cause?: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" ${what}.`, { provider: name, cause });
  }
}

function asItIs(record: SwitchRecord): SwitchRecord {
  return record;
}
