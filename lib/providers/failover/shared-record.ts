import { type ProviderContext, type Records } from '../../api/lock-provider.js';
import { SuspensionDetector } from '../../core/toolkit/suspension.js';
import { LockError, LockUnavailableError } from '../../api/errors.js';
import { Agreement } from './agreement.js';
import type { SwitchListener } from './engine-selector.js';
import { inTime } from './in-time.js';
import { firstRecord, readRecord, type SwitchRecord, writeRecord } from './switch-record.js';

export const PATIENCE_PER_WINDOW = 3;
// Reading the time since boot costs 1.4 µs, too much for each lock; it is counted in steps of 10 ms anyway.
const LOOK_FOR_SUSPENSION_EVERY = 10;

/** Told what becomes of the agreement. */
export interface AgreementListener {
  readonly switched: SwitchListener;
  /** Time has passed that no clock has counted: nothing is confirmed any more. */
  suspended(): void;
}

/** The record on which processes agree, as this process knows it and writes it. */
export class SharedRecord {
  #agreement: Agreement;
  /** The record as it was last seen; `null` before there is one. */
  #text: string | null = null;
  readonly #suspension: SuspensionDetector;
  /** How many suspensions of the machine what is known has taken into account. */
  #suspensions = 0;
  #turn: Promise<void> = Promise.resolve();
  /** Asked for, and not sent yet. */
  #confirmation: Promise<boolean> | undefined;
  #trouble: unknown;
  #stopped = false;

  constructor(
    private readonly context: ProviderContext,
    private readonly window: number,
    private readonly records: Records,
    /** The engine that the first record of all names. */
    private readonly preferred: string,
    private readonly listener: AgreementListener,
  ) {
    this.#agreement = Agreement.unknown(window);
    this.#suspension = new SuspensionDetector(context.clock, LOOK_FOR_SUSPENSION_EVERY);
  }

  /** Resolves when nothing of it is under way any more. */
  stop(): Promise<void> {
    this.#stopped = true;
    return this.#turn;
  }

  /** What is known of the record, and until when it is believed. */
  get agreement(): Agreement {
    return this.#agreement;
  }

  /** The same, as things stand at `now`. */
  agreementAt(now: number): Agreement {
    this.#heed(this.#suspension.recent(now));
    return this.#agreement;
  }

  /** Why it could not be written, if the last write was not answered. */
  get trouble(): unknown {
    return this.#trouble;
  }

  /** For how long an answer to a write is waited for, in ms. */
  get patience(): number {
    return this.window / PATIENCE_PER_WINDOW;
  }

  /** Confirms it. Resolves to whether that was answered; never rejects. */
  confirm(): Promise<boolean> {
    // One write is enough for all who ask before it is sent: after an outage those of many would have to follow each other.
    this.#confirmation ??= this.#inTurn(() => {
      this.#confirmation = undefined;
      return this.#amend(asItIs, this.patience);
    }).then(
      () => true,
      () => false,
    );
    return this.#confirmation;
  }

  /** Writes what `change` makes of the record, in turn with all that is written. This confirms it. */
  amend(change: (record: SwitchRecord) => SwitchRecord, patience = this.patience): Promise<void> {
    return this.#inTurn(() => this.#amend(change, patience));
  }

  /** One after the other: a process that had two writes under way would not know which it confirms. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  /** On whatever others make of it meanwhile. */
  async #amend(change: (record: SwitchRecord) => SwitchRecord, patience: number): Promise<void> {
    const { clock } = this.context;
    const { window } = this;
    while (!this.#stopped) {
      this.#heed(this.#suspension.observe());
      const suspensions = this.#suspensions;
      const sentAt = clock.now();
      const record = this.#agreement.record ?? firstRecord(this.preferred, window, this.context.random.id());
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
    this.listener.switched({ epoch, engine: record.active }, before.record && record.history.at(-1)?.reason);
  }

  /** While the machine was suspended the clock that all is counted on stood still, and others have gone on. */
  #heed(suspensions: number): void {
    if (suspensions === this.#suspensions) return;
    this.#suspensions = suspensions;
    this.#agreement = this.#agreement.dropped();
    this.listener.suspended();
  }

  #unavailable(what: string, cause?: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" ${what}.`, { provider: name, cause });
  }
}

/** The change that confirms it. */
export function asItIs(record: SwitchRecord): SwitchRecord {
  return record;
}
