import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';
import { compareRecords, type JobRecord, MOST_AHEAD, parseRecord, recordText } from '../../core/job-record.js';
import type { ProviderCore } from '../../core/provider-core.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { backOff, withTimeout } from '../../core/toolkit/timing.js';

const RETRY = { first: 50, most: 250 };

/** A record, as it was stored at some moment. */
export interface Seen {
  readonly text: string | null;
  /** `undefined` where nothing is stored, or nothing that can be true. */
  readonly record: JobRecord | undefined;
  /** The stored tick that cannot be true, because it is too far ahead of the time of the server. */
  readonly impossibleTick: number | undefined;
}

/** The record of one job on its backend, as this process knows it. */
export class JobRecordClient {
  readonly #store: RecordStore;
  /** By how much the clock of the server is ahead of the monotonic clock, by its last answer; before that, the clock of this process is taken for it. */
  #serverAhead: number;
  /** The last of the records that this process has seen or tried to write, in the order of {@link compareRecords}. */
  #known: JobRecord | undefined;
  /** The text that was warned of last. */
  #warnedOf: string | undefined;

  /** @throws LockConfigError for a provider without records */
  constructor(
    private readonly core: ProviderCore,
    private readonly key: string,
  ) {
    this.#store = recordsOf(core);
    this.#serverAhead = core.clock.wallTime() - core.clock.now();
  }

  /** The time of the server in whole ms since 1970: by its last answer, and what has passed since on the monotonic clock. */
  get serverTime(): number {
    return Math.floor(this.core.clock.now() + this.#serverAhead);
  }

  /** The last record that this process knows, unless it is of a tick that has turned out to be in the future. */
  get known(): JobRecord | undefined {
    return this.#known && this.#isPossible(this.#known) ? this.#known : undefined;
  }

  /**
   * @param within for so many ms it is asked again while it does not answer
   * @throws LockUnavailableError after that; LockConfigError for a record of a later version of this package
   */
  read(within: number): Promise<Seen> {
    return this.#ask(() => this.#store.read(this.key), within);
  }

  /**
   * Writes `next` if the record is still as it was seen, and answers what is stored after it: its `text` is that of `next` if it was written.
   * A repetition after a lost reply finds that `next` is stored.
   *
   * @param within as of {@link read}
   * @throws as {@link read}. After LockUnavailableError the record may be written, also later
   */
  replace(seen: Seen, next: JobRecord, within: number): Promise<Seen> {
    const text = recordText(next);
    return this.#ask(() => this.#store.replace(this.key, seen.text, text), within);
  }

  /** Writes the end of a run, unless the backend has a later record. If it does not answer, {@link restore} writes the end when it does. @throws as {@link read} */
  async conclude(seen: Seen, ended: JobRecord, within: number): Promise<void> {
    this.#learn(ended);
    await this.restore(seen, within);
  }

  /** Writes the last record that this process knows, if the backend has none or an earlier one. Answers what is stored after it. @throws as {@link read} */
  async restore(stored: Seen, within: number): Promise<Seen> {
    let seen = stored;
    for (let lost = this.#lostBy(seen); lost; lost = this.#lostBy(seen)) seen = await this.replace(seen, lost, within);
    return seen;
  }

  #lostBy({ record }: Seen): JobRecord | undefined {
    const { known } = this;
    return known && (record === undefined || compareRecords(record, known) < 0) ? known : undefined;
  }

  #learn(record: JobRecord): void {
    const { known } = this;
    if (known === undefined || compareRecords(record, known) >= 0) this.#known = record;
  }

  #isPossible({ tick }: JobRecord): boolean {
    return tick <= this.serverTime + MOST_AHEAD;
  }

  async #ask(ask: () => Promise<StoredRecord>, within: number): Promise<Seen> {
    const { clock, random, name } = this.core;
    const deadline = clock.now() + within;
    const late = () => {
      throw new LockUnavailableError(
        `Lock provider "${name}" did not answer a request for the record of job "${this.key}" within ${within} ms. Check that its server is up and reachable.`,
        { key: this.key, provider: name },
      );
    };
    for (let round = 0; ; round += 1) {
      try {
        const { value, serverTime } = await withTimeout(clock, deadline - clock.now(), ask(), late);
        this.#serverAhead = serverTime - clock.now();
        return this.#see(value);
      } catch (error) {
        const delay = backOff(random, round, RETRY);
        if (!isUnavailable(error) || clock.now() + delay >= deadline) throw error;
        await new Promise<void>((resolve) => clock.setTimer(resolve, delay, true));
      }
    }
  }

  #see(text: string | null): Seen {
    if (text === null) return { text, record: undefined, impossibleTick: undefined };
    const parsed = parseRecord(text);
    if (parsed === 'newer') {
      throw new LockConfigError(
        `The record of job "${this.key}" on lock provider "${this.core.name}" was written by a later version of nestjs-distributed-lock, so this instance does not run the job: update the package here.`,
        { key: this.key, provider: this.core.name },
      );
    }
    if (parsed === 'damaged') {
      this.#warnOf(text, 'cannot be read');
      return { text, record: undefined, impossibleTick: undefined };
    }
    if (!this.#isPossible(parsed)) {
      const ahead = Math.round((parsed.tick - this.serverTime) / 1_000);
      const tick = new Date(parsed.tick).toISOString();
      this.#warnOf(text, `is for ${tick}, ${ahead} s later than the time of the server: a clock is or was wrong`);
      return { text, record: undefined, impossibleTick: parsed.tick };
    }
    this.#learn(parsed);
    return { text, record: parsed, impossibleTick: undefined };
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
    `Lock provider "${name}" keeps no records, so a job on it cannot remember which ticks were started: set "minHold", the shortest time between two runs, or name a provider that has records (Redis, SQL, ZooKeeper, failover, memory).`,
    { provider: name },
  );
}
