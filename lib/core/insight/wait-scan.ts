import type { WaitBoard } from '../../api/lock-provider.js';
import { instanceIdOf } from '../toolkit/instance-ids.js';
import { promised } from '../toolkit/promised.js';
import { isLater, type LinksOf, type PublishedWait, type WaitLink } from './cycle-search.js';
import { readWaitRecord, type WaitRecord } from './wait-record.js';

// These limits bound the cost of one scan.
const MAX_KEYS = 128;
const MAX_HOLDERS_PER_KEY = 64;
const MAX_RECORDS = 64;
const NONE: readonly WaitLink[] = [];

/** Reads one provider's wait-for graph, starting from this process's waits. */
export class WaitScan {
  readonly #links = new Map<string, readonly WaitLink[]>();
  readonly #records = new Map<string, Promise<WaitRecord | undefined>>();

  constructor(
    private readonly board: WaitBoard,
    instanceId: string,
    /** The record that this process has published. */
    own: WaitRecord | undefined,
  ) {
    this.#records.set(instanceId, Promise.resolve(own));
  }

  readonly linksOf: LinksOf = (key) => this.#links.get(key) ?? NONE;

  /**
   * Reads the holders of these keys, then the holders of the keys they're waiting for, and so on.
   *
   * @param latest the latest wait to consider: if a cycle includes a later wait, its victim is in another process
   * @param isHeld whether this process holds the key. Such keys are read first, because they may close a cycle
   */
  async from(start: ReadonlySet<string>, latest: PublishedWait, isHeld: (key: string) => boolean): Promise<void> {
    let keys = start;
    while (keys.size > 0 && this.#links.size < MAX_KEYS) {
      const next = [...keys]
        .sort((one, other) => Number(isHeld(other)) - Number(isHeld(one)))
        .slice(0, MAX_KEYS - this.#links.size);
      const links = await Promise.all(next.map((key) => this.#read(key)));
      const awaited = links.flat().filter(({ wait }) => !isLater(wait, latest) && !this.#links.has(wait.key));
      keys = new Set(awaited.map(({ wait }) => wait.key));
    }
  }

  async #read(key: string): Promise<readonly WaitLink[]> {
    this.#links.set(key, NONE);
    // On failure, treat the key as free. Outages are reported elsewhere.
    const holders = await promised(() => this.board.holders(key, MAX_HOLDERS_PER_KEY)).catch(() => []);
    const links = await Promise.all(
      holders.map(async ({ id, mode }) => (await this.#recordOf(instanceIdOf(id)))?.linksOf(id, mode) ?? NONE),
    );
    this.#links.set(key, links.flat());
    return links.flat();
  }

  #recordOf(instance: string): Promise<WaitRecord | undefined> | undefined {
    let record = this.#records.get(instance);
    if (record === undefined && this.#records.size <= MAX_RECORDS) {
      const onText = (text: string | null) => (text === null ? undefined : readWaitRecord(instance, text));
      record = promised(() => this.board.read(instance)).then(onText, () => undefined);
      this.#records.set(instance, record);
    }
    return record;
  }
}
