import type { SwitchReason } from '../../api/failover-state.js';
import type { Timer } from '../../api/clock.js';
import { LockError, LockUnavailableError } from '../../api/errors.js';
import type { BackendContext, CasStore } from '../../api/lock-provider.js';
import type { SuspensionDetector } from '../../core/toolkit/suspension.js';
import { jitter, pause, withTimeout } from '../../core/toolkit/timing.js';
import { Confirmation } from './confirmation.js';
import { type EpochRecord, firstRecord, readRecord } from './epoch-record.js';
import type { FailoverSettings } from './failover-options.js';
import type { SwitchPolicy } from './switch-policy.js';

/** A confirmation is valid for three of these, so one lost answer costs nothing. */
const WRITES_PER_WINDOW = 3;
/** How soon after a failed write the next one is sent. */
const TRIES_PER_WINDOW = 4;
/**
 * How long an answer is waited for. A confirmation counts from its sending, so an answer is worth waiting for as long as the next write can
 * still be answered before it ends: writes that follow each other and take half a window each leave no gap. And a write whose answer is lost
 * leaves time for one more, so an outage of half a window costs nothing.
 */
const ANSWERS_PER_WINDOW = 2;
const JITTER = 0.1;
/**
 * How often a write tries to change the record before it confirms what it finds. Many processes may report at the same moment, and
 * one that conflicts again and again would lose its locks; see {@link SharedRecord}.
 */
const REPORT_TRIES = 2;

/**
 * The record that all processes share, as this process sees it and writes it.
 *
 * One conditional write each third of a window confirms the epoch and carries the report of this process. While no report changes,
 * all processes write the very text that they found, so they never conflict. A write that changes the record costs each other process
 * one conflict, and so a second try.
 *
 * Reports never starve confirmations. A write changes the record only while the confirmation of its process is younger than half
 * a window, and in its first two tries. Otherwise it writes what it found, which is in nobody's way. So as the confirmations of
 * many processes age during a storm of reports, fewer of them change the record, and at the latest at half a window every one of them
 * confirms.
 */
export class SharedRecord {
  #confirmation: Confirmation;
  /** The record as it was last seen; `null` before there is one. */
  #text: string | null = null;
  /** How many suspensions of the machine the confirmation has taken into account. */
  #suspensions = 0;
  #turn: Promise<void> = Promise.resolve();
  /** A write that was asked for and is not sent yet. */
  #requested: Promise<void> | undefined;
  readonly #awaiting = new Set<() => void>();
  #sentAt = -Infinity;
  #cause: unknown;
  #timer: Timer | undefined;
  /** Aborts at the start of `close`: nothing is reported any more. */
  readonly #closing = new AbortController();
  #isClosed = false;

  constructor(
    private readonly context: BackendContext,
    private readonly settings: FailoverSettings,
    private readonly casStore: CasStore,
    private readonly suspension: SuspensionDetector,
    private readonly policy: SwitchPolicy,
    /** Called with each epoch that this process starts or learns of; without a reason for the first. */
    private readonly onEpoch: (record: EpochRecord, reason: SwitchReason | undefined) => void,
  ) {
    this.#confirmation = Confirmation.unknown(settings.window);
  }

  /** Resolves when locks can be granted. @throws LockUnavailableError when the record cannot be written; it keeps trying */
  async connect(): Promise<void> {
    // The first write may have to wait for a connection and a table.
    await this.#inTurn(() => this.#amend((record) => record, this.settings.window));
    await this.#settled();
  }

  /** Removes the report of this process, so that it does not count against a switch. Resolves when no write is in flight any more. */
  async close(): Promise<void> {
    const leave = (record: EpochRecord, tries: number) => (tries < REPORT_TRIES ? this.policy.left(record) : record);
    const isReachable = this.#confirmation.record !== undefined && this.#cause === undefined;
    this.#closing.abort();
    if (isReachable) await this.#inTurn(() => this.#amend(leave)).catch(() => undefined);
    this.#isClosed = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    await this.#turn;
  }

  /**
   * The epoch that is confirmed at `now`, for an answer that has come. Looks for a suspension each time: after one the monotonic clock shows that no time
   * has passed, so an earlier look would not count as old.
   */
  confirmationAt(now: number): Confirmation {
    this.#noteSuspensions(this.suspension.observeGrant(now));
    return this.#confirmation;
  }

  /** The same for an ask, whose answer is looked at again: the look for a suspension may be a second old. */
  recentConfirmation(now: number): Confirmation {
    this.#noteSuspensions(this.suspension.recent(now));
    return this.#confirmation;
  }

  /** The record as it was last seen. */
  get latest(): EpochRecord | undefined {
    return this.#confirmation.record;
  }

  /** Why it could not be written, if the last write was not answered. */
  get cause(): unknown {
    return this.#cause;
  }

  /** Resolves when the next write is over, whether it was answered or not. */
  nextWrite(): Promise<void> {
    return new Promise((resolve) => this.#awaiting.add(resolve));
  }

  /** Confirms and reports now: one write for all that ask before it is sent. Never rejects. */
  write(): Promise<void> {
    this.#requested ??= this.#inTurn(() => {
      this.#requested = undefined;
      return this.#amend((record, tries) => this.#reported(record, tries));
    }).catch(() => undefined);
    return this.#requested;
  }

  /** @throws LockUnavailableError when it is unknown whether it was switched */
  switchTo(name: string): Promise<void> {
    return this.#inTurn(() =>
      this.#amend((record) =>
        record.active === name ? { ...record, pinned: true } : this.policy.switched(record, name, 'manual'),
      ),
    );
  }

  #reported(record: EpochRecord, tries: number): EpochRecord {
    if (this.#closing.signal.aborted) return record;
    const { confirmedAt, learnedAt } = this.#confirmation;
    const isFresh = this.#sentAt < confirmedAt + this.settings.window / 2;
    return isFresh && tries < REPORT_TRIES ? this.policy.next(record, learnedAt, this.#sentAt) : record;
  }

  /** One after the other: a process with two writes in flight would not know which of them is confirmed. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  /** Writes what `change` makes of the record, again for each record that it finds instead. Confirms it. */
  async #amend(
    change: (record: EpochRecord, tries: number) => EpochRecord,
    timeout = this.settings.window / ANSWERS_PER_WINDOW,
  ): Promise<void> {
    const { clock } = this.context;
    if (this.#timer) clock.clearTimer(this.#timer);
    let isConfirmed = false;
    try {
      for (let tries = 0; !isConfirmed; tries += 1) {
        if (this.#isClosed) throw this.#unavailable('is stopping');
        isConfirmed = await this.#try((record) => change(record, tries), timeout);
      }
    } finally {
      this.#schedule(isConfirmed ? WRITES_PER_WINDOW : TRIES_PER_WINDOW);
      for (const resolve of this.#awaiting) resolve();
      this.#awaiting.clear();
    }
  }

  /** One conditional write. Resolves to whether it has confirmed the record. */
  async #try(change: (record: EpochRecord) => EpochRecord, timeout: number): Promise<boolean> {
    const { clock, random } = this.context;
    const { window, providers } = this.settings;
    this.#noteSuspensions(this.suspension.observe());
    const suspensions = this.#suspensions;
    const sentAt = clock.now();
    this.#sentAt = sentAt;
    const { record: known, settlesAt } = this.#confirmation;
    const record = known ?? firstRecord(providers[0] ?? '', window, random.id());
    const next = change({
      ...record,
      settled: record.settled || (known !== undefined && sentAt >= settlesAt),
      window: Math.max(record.window, window),
    });
    if (next.epoch !== record.epoch) this.#confirmation = this.#confirmation.dropped();
    const text = JSON.stringify(next);
    const found = await this.#compareAndSet(text, timeout);
    const now = clock.now();
    const seen = found === text ? next : this.#read(found);
    // Set only after the text was understood: a record that was deleted must not be restored from what one process knows.
    this.#text = found;
    this.#noteSuspensions(this.suspension.observe());
    const isConfirmed = found === text && suspensions === this.#suspensions;
    this.#follow(isConfirmed ? this.#confirmation.confirmed(seen, sentAt, now) : this.#confirmation.learned(seen, now));
    return isConfirmed;
  }

  async #compareAndSet(text: string, timeout: number): Promise<string | null> {
    try {
      const written = this.casStore.compareAndSet(this.context.name, this.#text, text);
      const found = await withTimeout(this.context.clock, timeout, written, () => {
        throw this.#unavailable(`got no answer from the record within ${timeout} ms`);
      });
      this.#cause = undefined;
      return found;
    } catch (error) {
      this.#cause = error;
      throw LockError.is(error) ? error : this.#unavailable('cannot write the record', error);
    }
  }

  /** The record that another process has written. */
  #read(found: string | null): EpochRecord {
    const known = this.#confirmation.record;
    const record = found === null ? undefined : readRecord(found);
    if (record && (!known || record.epoch > known.epoch || (record.epoch === known.epoch && record.id === known.id))) {
      return record;
    }
    const { clock, logger } = this.context;
    const wasConfirmed = clock.now() < this.#confirmation.validUntil(this.#confirmation.epoch);
    // Which locks other processes hold by it cannot be known any more.
    this.#confirmation = this.#confirmation.dropped();
    const error = this.#unavailable(
      'found its record deleted, damaged or restored from the past: stop all instances, then start them again',
    );
    this.#cause = error;
    if (wasConfirmed) logger.error(error.message);
    throw error;
  }

  #follow(confirmation: Confirmation): void {
    const before = this.#confirmation;
    this.#confirmation = confirmation;
    const { record } = confirmation;
    if (!record || record.epoch === before.epoch) return;
    this.onEpoch(record, before.record && record.history.at(-1)?.reason);
  }

  /** During a suspension the monotonic clock stood still while other processes went on. */
  #noteSuspensions(suspensions: number): void {
    if (suspensions === this.#suspensions) return;
    this.#suspensions = suspensions;
    this.#confirmation = this.#confirmation.dropped();
    if (this.#confirmation.record) void this.write();
  }

  #schedule(perWindow: number): void {
    if (this.#isClosed) return;
    const { clock, random } = this.context;
    const interval = jitter(random, this.settings.window / perWindow, JITTER);
    this.#timer = clock.setTimer(() => void this.write(), Math.max(0, this.#sentAt + interval - clock.now()));
  }

  /** An application can acquire locks as soon as it has started, so its start waits. */
  async #settled(): Promise<void> {
    const { clock } = this.context;
    const remaining = () => this.#confirmation.settlesAt - clock.now();
    // Timers count in whole ms and may fire a fraction early.
    const { signal } = this.#closing;
    for (let wait = remaining(); wait > 0 && !signal.aborted; wait = remaining()) {
      await pause(clock, Math.ceil(wait), signal, true);
    }
  }

  #unavailable(what: string, cause?: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" ${what}.`, { provider: name, cause });
  }
}
