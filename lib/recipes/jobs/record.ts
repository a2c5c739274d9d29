import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';
import { type JobRecord, parseRecord, recordText } from '../../core/job-record.js';
import type { ProviderCore } from '../../core/provider-core.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { backOff, withTimeout } from '../../core/toolkit/timing.js';

const RETRY = { first: 50, most: 250 };
/** How far ahead of the server's time a tick may be, in ms. */
export const MOST_AHEAD = 60_000;

/** A snapshot of a record. */
export interface Seen {
  readonly text: string | null;
  /** `undefined` if nothing plausible is stored. */
  readonly record: JobRecord | undefined;
  /** The stored tick, if it is too far ahead of the server's time to be plausible. */
  readonly impossibleTick: number | undefined;
}

/** One job's record, as stored on its backend and as known to this process. */
export class JobRecordClient {
  readonly #store: RecordStore;
  /**
   * How far the server's clock is ahead of the monotonic clock, according to the last response. Before the first
   * response, this process's clock is used instead.
   */
  #serverAhead: number;
  /** The latest record, by {@link compareRecords}, that this process has seen or tried to write. */
  #known: JobRecord | undefined;
  #warnedOf: string | undefined;

  /** @throws LockConfigError for a provider without records */
  constructor(
    private readonly core: ProviderCore,
    private readonly key: string,
  ) {
    this.#store = recordsOf(core);
    this.#serverAhead = core.clock.wallTime() - core.clock.now();
  }

  /** The server's time in whole ms since 1970: the time in its last response, plus the monotonic time since then. */
  get serverTime(): number {
    return Math.floor(this.core.clock.now() + this.#serverAhead);
  }

  /** The latest record that this process knows, unless its tick has turned out to be in the future. */
  get known(): JobRecord | undefined {
    return this.#known && this.#isPossible(this.#known) ? this.#known : undefined;
  }

  /**
   * @param timeout how long the request is retried while the backend does not respond, in ms
   * @throws LockUnavailableError after that; LockConfigError for a record from a later version of this package
   */
  async read(timeout: number): Promise<Seen> {
    return this.#see(await this.#request(() => this.#store.read(this.key), timeout));
  }

  /**
   * Writes `next` if the record hasn't changed since it was seen. Resolves to the state stored afterward: its `record`
   * is `next` if that was written, even by an earlier try whose reply was lost.
   *
   * @throws like {@link read}. After LockUnavailableError, the record may have been written, or may be written later
   */
  async replace(seen: Seen, next: JobRecord, timeout: number): Promise<Seen> {
    const text = recordText(next);
    const stored = await this.#request(() => this.#store.replace(this.key, seen.text, text), timeout);
    if (stored !== text) return this.#see(stored);
    this.#learn(next);
    return { text, record: next, impossibleTick: undefined };
  }

  /**
   * Writes the latest record known to this process if the stored one is earlier or missing. Resolves to the state
   * stored afterward.
   *
   * @param ended the end of a run here. If the backend does not respond, a later call writes it
   * @throws as {@link read}
   */
  async restore(stored: Seen, timeout: number, ended?: JobRecord): Promise<Seen> {
    if (ended) this.#learn(ended);
    for (let seen = stored; ;) {
      const { known } = this;
      if (!known || (seen.record && compareRecords(seen.record, known) >= 0)) return seen;
      seen = await this.replace(seen, known, timeout);
    }
  }

  #learn(record: JobRecord): void {
    const { known } = this;
    if (known === undefined || compareRecords(record, known) >= 0) this.#known = record;
  }

  #isPossible({ tick }: JobRecord): boolean {
    return tick <= this.serverTime + MOST_AHEAD;
  }

  async #request(send: () => Promise<StoredRecord>, timeout: number): Promise<string | null> {
    const { clock, random, name } = this.core;
    const deadline = clock.now() + timeout;
    const late = () => {
      throw new LockUnavailableError(
        `Lock provider "${name}" did not respond to a request for the record of job "${this.key}" within ${timeout} ms. Check that its server is up and reachable.`,
        { key: this.key, provider: name },
      );
    };
    for (let round = 0; ; round += 1) {
      try {
        const { value, serverTime } = await withTimeout(clock, deadline - clock.now(), send(), late);
        this.#serverAhead = serverTime - clock.now();
        return value;
      } catch (error) {
        const delay = backOff(random, round, RETRY);
        if (!isUnavailable(error) || clock.now() + delay >= deadline) throw error;
        await new Promise<void>((resolve) => clock.setTimer(resolve, delay, true));
      }
    }
  }

  #see(text: string | null): Seen {
    const nothing: Seen = { text, record: undefined, impossibleTick: undefined };
    if (text === null) return nothing;
    const parsed = parseRecord(text);
    if (parsed === 'newer') {
      throw new LockConfigError(
        `The record of job "${this.key}" on lock provider "${this.core.name}" was written by a later version of nestjs-distributed-lock, so this instance will not run the job: update the package here.`,
        { key: this.key, provider: this.core.name },
      );
    }
    if (parsed === 'damaged') {
      this.#warnOf(text, 'cannot be read');
      return nothing;
    }
    if (!this.#isPossible(parsed)) {
      const ahead = Math.round((parsed.tick - this.serverTime) / 1_000);
      const tick = new Date(parsed.tick).toISOString();
      this.#warnOf(text, `is for ${tick}, ${ahead} s ahead of the server's clock: a clock is or was wrong`);
      return { ...nothing, impossibleTick: parsed.tick };
    }
    this.#learn(parsed);
    return { ...nothing, record: parsed };
  }

  #warnOf(text: string, what: string): void {
    if (this.#warnedOf === text) return;
    this.#warnedOf = text;
    this.core.logger.warn(
      `The record of job "${this.key}" on lock provider "${this.core.name}" ${what}. The job runs as if it had no record, and its next run writes a new one. Find out what wrote this one.`,
    );
  }
}

/** @throws LockConfigError for a provider without records */
function recordsOf({ backend, name }: ProviderCore): RecordStore {
  if (backend.records) return backend.records;
  throw new LockConfigError(
    `Lock provider "${name}" does not store records, so its jobs cannot track which ticks have started: set "minHold", the shortest time between two runs, or use a provider that stores records (Redis, SQL, ZooKeeper, failover, memory).`,
    { provider: name },
  );
}

/**
 * The order of a job's records: by tick, then attempt, then start before end. Negative if `one` comes
 * before `other`.
 *
 * Each process knows only some records. After data loss, the latest record known to any process counts; otherwise, a
 * finished run would be started again.
 */
function compareRecords(one: JobRecord, other: JobRecord): number {
  return one.tick - other.tick || one.attempt - other.attempt || Number(isOver(one)) - Number(isOver(other));
}

function isOver({ state }: JobRecord): boolean {
  return state !== 'running';
}

/**
 * The last time a record's run is known to have been active. If the server's clock was ahead, the recorded time is
 * still in the future, so only the tick counts.
 */
export function lastTimeOf({ tick, startedAt, endedAt }: JobRecord, serverTime: number): number {
  const last = endedAt ?? startedAt;
  return last > serverTime + MOST_AHEAD ? tick : last;
}
