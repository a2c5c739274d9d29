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

/** A confirmation outlasts three writes, so one lost response does no harm. */
const WRITES_PER_WINDOW = 3;
/** How soon a failed write is retried. */
const TRIES_PER_WINDOW = 4;
/**
 * How long to wait for a response. A confirmation counts from when it was sent, so a response is useful as long as the
 * next write can be confirmed before this confirmation ends. Consecutive writes that take half a window each leave no
 * gap, and a lost response leaves time for one more write. So an outage of half a window does no harm.
 */
const ANSWERS_PER_WINDOW = 2;
const JITTER = 0.1;
/**
 * How many times a write tries to change the record before it only confirms what it finds. Many processes may report at
 * once, and a process whose writes keep conflicting would lose its locks; see {@link SharedRecord}.
 */
const REPORT_TRIES = 2;

/**
 * The shared record as this process sees and writes it.
 *
 * One conditional write every third of a window confirms the epoch and carries this process's report. As long as
 * no report changes, all processes write exactly the text they found, so they never conflict. A write that changes the
 * record costs every other process one conflict and a retry.
 *
 * Reports never starve confirmations. A write changes the record only while its process's confirmation is less than
 * half a window old, and only in its first two tries. Otherwise, it writes back what it found, which never conflicts
 * with other processes. During a storm of reports, confirmations age, so fewer processes change the record, and after
 * half a window at the latest every process only confirms.
 */
export class SharedRecord {
  #confirmation: Confirmation;
  /** The record's text as last seen; null before it exists. */
  #text: string | null = null;
  /** The number of suspensions that the confirmation accounts for. */
  #suspensions = 0;
  #lastWrite: Promise<void> = Promise.resolve();
  /** A write that has been requested but not yet sent. */
  #requested: Promise<void> | undefined;
  readonly #awaiting = new Set<() => void>();
  #sentAt = -Infinity;
  #cause: unknown;
  #timer: Timer | undefined;
  /** Aborted when `close` starts: from then on, nothing is reported. */
  readonly #closing = new AbortController();
  #isClosed = false;

  constructor(
    private readonly context: BackendContext,
    private readonly settings: FailoverSettings,
    private readonly casStore: CasStore,
    private readonly suspension: SuspensionDetector,
    private readonly policy: SwitchPolicy,
    /** Called with each epoch that this process starts or learns of. The first call omits the reason. */
    private readonly onEpoch: (record: EpochRecord, reason: SwitchReason | undefined) => void,
  ) {
    this.#confirmation = Confirmation.unknown(settings.window);
  }

  /**
   * Resolves when locks can be granted. @throws LockUnavailableError if the record can't be written; retries continue
   */
  async connect(): Promise<void> {
    // The first write may have to wait for a connection and a table.
    await this.#enqueue(() => this.#amend((record) => record, this.settings.window));
    await this.#settled();
  }

  /**
   * Removes this process's report, so it doesn't count against a switch. Resolves when no write is in flight.
   */
  async close(): Promise<void> {
    const leave = (record: EpochRecord, tries: number) => (tries < REPORT_TRIES ? this.policy.left(record) : record);
    const isReachable = this.#confirmation.record !== undefined && this.#cause === undefined;
    this.#closing.abort();
    if (isReachable) await this.#enqueue(() => this.#amend(leave)).catch(() => undefined);
    this.#isClosed = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    await this.#lastWrite;
    // No write follows, so nothing may wait for one.
    for (const resolve of this.#awaiting) resolve();
    this.#awaiting.clear();
  }

  /**
   * The confirmation at `now`, for a response that has arrived. Always checks for a suspension: the monotonic clock
   * stops during one, so an earlier check would seem recent.
   */
  confirmationAt(now: number): Confirmation {
    this.#noteSuspensions(this.suspension.observeGrant(now));
    return this.#confirmation;
  }

  /**
   * The same for sending a request. The last suspension check may be up to a second old, because the response gets a
   * new one.
   */
  recentConfirmation(now: number): Confirmation {
    this.#noteSuspensions(this.suspension.recent(now));
    return this.#confirmation;
  }

  /** The record as last seen. */
  get latest(): EpochRecord | undefined {
    return this.#confirmation.record;
  }

  /** Why the last write failed, if it did. */
  get cause(): unknown {
    return this.#cause;
  }

  /** Resolves when the next write is done, successful or not. */
  nextWrite(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    return new Promise((resolve) => this.#awaiting.add(resolve));
  }

  /** Confirms and reports now. All calls made before the write is sent share that write. Never rejects. */
  write(): Promise<void> {
    this.#requested ??= this.#enqueue(() => {
      this.#requested = undefined;
      return this.#amend((record, tries) => this.#reported(record, tries));
    }).catch(() => undefined);
    return this.#requested;
  }

  /** @throws LockUnavailableError if the outcome of the switch is unknown */
  switchTo(name: string): Promise<void> {
    return this.#enqueue(() =>
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

  /** Runs writes one after another. With two in flight, a process wouldn't know which one was confirmed. */
  #enqueue(work: () => Promise<void>): Promise<void> {
    const done = this.#lastWrite.then(work);
    this.#lastWrite = done.catch(() => undefined);
    return done;
  }

  /**
   * Applies `change` to the record and writes the result. If it finds a different record instead, retries with that
   * one.
   */
  async #amend(
    change: (record: EpochRecord, tries: number) => EpochRecord,
    timeout = this.settings.window / ANSWERS_PER_WINDOW,
  ): Promise<void> {
    const { clock } = this.context;
    if (this.#timer) clock.clearTimer(this.#timer);
    let isConfirmed = false;
    try {
      for (let tries = 0; !isConfirmed; tries += 1) {
        if (this.#isClosed) throw this.#unavailable('is shutting down');
        isConfirmed = await this.#try((record) => change(record, tries), timeout);
      }
    } finally {
      this.#schedule(isConfirmed ? WRITES_PER_WINDOW : TRIES_PER_WINDOW);
      for (const resolve of this.#awaiting) resolve();
      this.#awaiting.clear();
    }
  }

  /** Sends one conditional write. Resolves to whether it confirmed the record. */
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
    // Set only after parsing the text: a deleted record must not be restored from one process's memory.
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
        throw this.#unavailable(`got no response for its record within ${timeout} ms`);
      });
      this.#cause = undefined;
      return found;
    } catch (error) {
      this.#cause = error;
      throw LockError.is(error) ? error : this.#unavailable('cannot write the record', error);
    }
  }

  /** Parses a record written by another process. */
  #read(found: string | null): EpochRecord {
    const known = this.#confirmation.record;
    const record = found === null ? undefined : readRecord(found);
    if (record && (!known || record.epoch > known.epoch || (record.epoch === known.epoch && record.id === known.id))) {
      return record;
    }
    const { clock, logger } = this.context;
    const wasConfirmed = clock.now() < this.#confirmation.validUntil(this.#confirmation.epoch);
    // We no longer know which locks other processes hold under this record.
    this.#confirmation = this.#confirmation.dropped();
    const error = this.#unavailable(
      'found its record deleted, damaged, or restored from a backup. Stop all instances, then restart them',
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

  /** The monotonic clock stops during a suspension, but other processes keep running. */
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

  /** Waits during startup, because the application may acquire locks as soon as it has started. */
  async #settled(): Promise<void> {
    const { clock } = this.context;
    const remaining = () => this.#confirmation.settlesAt - clock.now();
    // Timers use whole milliseconds and may fire slightly early.
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
