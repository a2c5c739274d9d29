import type { ProviderContext, Records, Timer } from '../../engine/lock-provider.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../lock/errors.js';
import { Agreement } from './agreement.js';
import { inTime } from './engine-health.js';
import type { Choice, EngineSelector, Outlook, Position, SwitchListener } from './engine-selector.js';
import { anyMisses, Fleet, mostMiss } from './fleet.js';
import {
  firstRecord,
  readRecord,
  type SwitchReason,
  type SwitchRecord,
  switched,
  writeRecord,
} from './switch-record.js';

export interface StrictTerms {
  /** How long a confirmation is good for, in ms. */
  readonly window: number;
  /** How long the preferred engine stays away at the first time, in ms. Doubled with each return. */
  readonly minStay: number;
}

// Written several times in each window, so that one or two lost answers cost nothing.
const ROUNDS_PER_WINDOW = 5;
const PATIENCE_PER_WINDOW = 3;
/** A process whose count stands still for this many windows is gone. */
const ABSENT_AFTER = 2;
const LONGEST_STAY = 3_600_000;

/**
 * Mode `strict`: all processes follow one record, by the rule of {@link Agreement}. Several times in each window this
 * process writes that it is still there and which engines do not answer it; the same write confirms the epoch.
 *
 * An engine is left when it answers neither this process nor most of those that are there; whoever alone cannot reach
 * it fails closed. Who cannot reach the record fails closed too.
 */
export class StrictSelector implements EngineSelector {
  #agreement: Agreement;
  readonly #fleet: Fleet;
  readonly #process: string;
  /** The record as it was last seen; `null` before there is one. */
  #text: string | null = null;
  #beat = 0;
  #order: string | undefined;
  #turn: Promise<void> = Promise.resolve();
  #timer: Timer | undefined;
  #trouble: unknown;
  #stopped = false;

  constructor(
    private readonly context: ProviderContext,
    private readonly terms: StrictTerms,
    private readonly records: Records,
    private readonly outlook: Outlook,
    private readonly onSwitch: SwitchListener,
  ) {
    this.#agreement = Agreement.unknown(terms.window);
    this.#fleet = new Fleet(terms.window * ABSENT_AFTER);
    this.#process = context.random.id();
  }

  async start(): Promise<void> {
    try {
      await this.#inTurn();
    } finally {
      this.#schedule();
    }
  }

  stop(): void {
    this.#stopped = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
  }

  choose(): Choice {
    const { record } = this.#agreement;
    const now = this.context.clock.now();
    if (!record || now >= this.#agreement.validUntil(record.epoch)) {
      throw this.#unavailable('cannot reach the record on which its processes agree', this.#trouble);
    }
    if (!this.outlook.has(record.active)) {
      throw this.#unavailable(
        `is on "${record.active}" in other processes, which is not among the engines of this one`,
      );
    }
    const wait = Math.ceil(this.#agreement.settlesAt - now);
    if (wait > 0) {
      throw this.#unavailable(
        `has switched to "${record.active}" and waits ${wait} ms for the last locks of the other`,
      );
    }
    return { epoch: record.epoch, engine: record.active };
  }

  validUntil(epoch: number): number {
    return this.#agreement.validUntil(epoch);
  }

  review(): void {
    // The next round says so, and acts on it.
    if (!this.#stopped && this.#agreement.record) void this.#inTurn().catch(() => undefined);
  }

  async switchTo(engine: string): Promise<void> {
    this.#order = engine;
    try {
      await this.#inTurn();
    } finally {
      this.#order = undefined;
    }
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
      void this.#inTurn()
        .catch(() => undefined)
        .then(() => {
          this.#schedule();
        });
    }, delay);
  }

  /** One round after the other: a process that had two writes under way would not know which it confirms. */
  #inTurn(): Promise<void> {
    const round = this.#turn.then(() => this.#round());
    this.#turn = round.catch(() => undefined);
    return round;
  }

  /** Writes until a write of ours was the next one. */
  async #round(): Promise<void> {
    const { clock } = this.context;
    while (!this.#stopped) {
      const next = this.#next(clock.now());
      const text = writeRecord(next);
      if (next.epoch !== this.#agreement.epoch) this.#agreement = this.#agreement.dropped();
      const sentAt = clock.now();
      const found = await this.#write(text);
      const now = clock.now();
      this.#text = found;
      if (found === text) {
        this.#follow(this.#agreement.confirmed(next, sentAt, now));
        return;
      }
      this.#follow(this.#agreement.learned(this.#read(found), now));
    }
  }

  #follow(agreement: Agreement): void {
    const before = this.#agreement;
    this.#agreement = agreement;
    const { epoch, record } = agreement;
    if (!record || epoch === before.epoch || !this.outlook.has(record.active)) return;
    this.onSwitch({ epoch, engine: record.active }, before.record && record.history.at(-1)?.reason);
  }

  async #write(text: string): Promise<string | null> {
    const { clock } = this.context;
    try {
      const patience = this.terms.window / PATIENCE_PER_WINDOW;
      const found = await inTime(this.records.compareAndSet(this.context.name, this.#text, text), patience, clock);
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
    // The record was deleted or set back. What other processes hold by it cannot be known any more.
    if (!record || (known && record.epoch < known.epoch)) {
      this.#trouble = new LockConfigError(
        `The record of lock provider "${this.context.name}" was deleted or restored from the past: stop all instances, then start them again.`,
        { provider: this.context.name },
      );
      throw this.#trouble;
    }
    return record;
  }

  #next(now: number): SwitchRecord {
    const record = this.#agreement.record ?? firstRecord(this.#preferred);
    const down = [...this.outlook].filter(([, { state }]) => state === 'down').map(([name]) => name);
    this.#beat += 1;
    const processes = { ...this.#fleet.present(record, now), [this.#process]: { beat: this.#beat, down } };
    const next = { ...record, processes, settled: record.settled || now >= this.#agreement.settlesAt };
    const { to, reason } = this.#destination(next, now) ?? {};
    return to === undefined || reason === undefined ? next : switched(next, to, reason, this.context.clock.wallTime());
  }

  #destination(record: SwitchRecord, now: number): { to: string; reason: SwitchReason } | undefined {
    const { active, processes } = record;
    if (this.#order !== undefined) return this.#order === active ? undefined : { to: this.#order, reason: 'manual' };
    const names = [...this.outlook.keys()];
    if (this.#state(active) === 'down' && mostMiss(active, processes)) {
      const to = names.find((name) => this.#state(name) !== 'down' && !mostMiss(name, processes));
      return to === undefined ? undefined : { to, reason: 'failure' };
    }
    const stay = Math.min(this.terms.minStay * 2 ** record.returns, LONGEST_STAY);
    if (now < this.#agreement.learnedAt + stay) return undefined;
    const better = names.slice(0, Math.max(0, names.indexOf(active)));
    const to = better.find((name) => this.#state(name) === 'up' && !anyMisses(name, processes));
    return to === undefined ? undefined : { to, reason: 'return' };
  }

  #state(engine: string) {
    return this.outlook.get(engine)?.state;
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
