import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';
import { type JobRecord, parseRecord, recordText } from '../../core/job-record.js';
import type { ProviderCore } from '../../core/provider-core.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { backOff, withTimeout } from '../../core/toolkit/timing.js';

const RETRY = { first: 50, most: 250 };

/** A record, as it was stored at some moment. */
export interface Seen {
  readonly text: string | null;
  /** `undefined` where nothing is stored, or nothing that can be read. */
  readonly record: JobRecord | undefined;
}

/** The record of one job on its backend, as this process knows it. */
export class JobRecordClient {
  readonly #store: RecordStore;
  /** By how much the clock of the server is ahead of the monotonic clock, by its last answer; before that, the clock of this process is taken for it. */
  #serverAhead: number;
  /** The record with the largest tick. */
  #known: Seen | undefined;
  #hasWarned = false;

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

  /** The record with the largest tick that this process has seen. */
  get known(): JobRecord | undefined {
    return this.#known?.record;
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

  /** Writes back the record with the largest tick that this process knows, if the backend has lost it. @throws as {@link read} */
  async restore(within: number): Promise<void> {
    let seen = await this.read(within);
    for (let lost = this.#lostBy(seen); lost; lost = this.#lostBy(seen)) seen = await this.replace(seen, lost, within);
  }

  #lostBy({ record }: Seen): JobRecord | undefined {
    const known = this.#known?.record;
    return known && (record === undefined || record.tick < known.tick) ? known : undefined;
  }

  async #ask(ask: () => Promise<StoredRecord>, within: number): Promise<Seen> {
    const { clock, random, name } = this.core;
    const deadline = clock.now() + within;
    const late = () => {
      throw new LockUnavailableError(
        `Lock provider "${name}" has not answered for ${within} ms when it was asked for the record of job "${this.key}": see whether its server can be reached.`,
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
    const parsed = text === null ? undefined : parseRecord(text);
    if (parsed === 'newer') {
      throw new LockConfigError(
        `The record of job "${this.key}" on lock provider "${this.core.name}" was written by a later version of nestjs-distributed-lock, so this instance does not run the job: update the package here.`,
        { key: this.key, provider: this.core.name },
      );
    }
    if (parsed === 'damaged') this.#warnOfDamage();
    const seen = { text, record: typeof parsed === 'object' ? parsed : undefined };
    if (seen.record && seen.record.tick >= (this.#known?.record?.tick ?? -Infinity)) this.#known = seen;
    return seen;
  }

  #warnOfDamage(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.core.logger.warn(
      `The record of job "${this.key}" on lock provider "${this.core.name}" cannot be read, so the job runs as if it had none. Its next run writes a new one. Find out what has changed it. (Warned once.)`,
    );
  }
}

/** @throws LockConfigError for a provider without records */
function recordsOf({ backend, name }: ProviderCore): RecordStore {
  if (backend.records) return backend.records;
  throw new LockConfigError(
    `Lock provider "${name}" keeps no records, so a job cannot remember there which ticks were begun: set "atLeast", the shortest time between two runs, or name a provider that has records (Redis, SQL, ZooKeeper, failover, memory).`,
    { provider: name },
  );
}
