import type { WaitBoard } from '../../api/lock-provider.js';
import { instanceIdOf } from '../toolkit/instance-ids.js';
import { isLater, type PublishedWait, type WaitLink } from './cycle-search.js';
import { readWaitRecord, type WaitRecord } from './wait-record.js';

/** The holders of a key that wait themselves. */
export type LinksOf = (key: string) => readonly WaitLink[];

/** How many keys one look reads, how many holders of each, and how many records of processes. */
const MOST_KEYS = 128;
const MOST_HOLDERS = 64;
const MOST_RECORDS = 64;
const NONE: readonly WaitLink[] = [];

/** The processes of one provider, as they look at one moment. */
export class WaitLook {
  readonly #links = new Map<string, readonly WaitLink[]>();
  readonly #records = new Map<string, Promise<WaitRecord | undefined>>();

  constructor(
    private readonly board: WaitBoard,
    instanceId: string,
    /** What this process has published. */
    own: WaitRecord | undefined,
  ) {
    this.#records.set(instanceId, Promise.resolve(own));
  }

  readonly linksOf: LinksOf = (key) => this.#links.get(key) ?? NONE;

  /**
   * Reads the holders of these keys, the keys for which those wait, and so on.
   *
   * @param latest waits that are later are not followed: in a cycle with one of them, another process has the victim
   * @param isHeld whether this process holds the key: reading it may close a cycle, so it is read first
   */
  async from(start: ReadonlySet<string>, latest: PublishedWait, isHeld: (key: string) => boolean): Promise<void> {
    let keys = start;
    while (keys.size > 0 && this.#links.size < MOST_KEYS) {
      const next = [...keys]
        .sort((one, other) => Number(isHeld(other)) - Number(isHeld(one)))
        .slice(0, MOST_KEYS - this.#links.size);
      const links = await Promise.all(next.map((key) => this.#read(key)));
      const awaited = links.flat().filter(({ wait }) => !isLater(wait, latest) && !this.#links.has(wait.key));
      keys = new Set(awaited.map(({ wait }) => wait.key));
    }
  }

  async #read(key: string): Promise<readonly WaitLink[]> {
    this.#links.set(key, NONE);
    // An outage has its own reports. Until it ends, this key has no holders that are known.
    const holders = await this.board.holders(key, MOST_HOLDERS).catch(() => []);
    const links = await Promise.all(
      holders.map(async ({ id, mode }) => (await this.#recordOf(instanceIdOf(id)))?.linksOf(id, mode) ?? NONE),
    );
    this.#links.set(key, links.flat());
    return links.flat();
  }

  #recordOf(instance: string): Promise<WaitRecord | undefined> | undefined {
    let record = this.#records.get(instance);
    if (record === undefined && this.#records.size <= MOST_RECORDS) {
      const onText = (text: string | null) => (text === null ? undefined : readWaitRecord(instance, text));
      record = this.board.read(instance).then(onText, () => undefined);
      this.#records.set(instance, record);
    }
    return record;
  }
}
