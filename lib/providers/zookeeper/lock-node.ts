import type { Folders } from './folders.js';
import type { Session } from './session.js';
import { type Children, isFailure } from './zookeeper-client.js';

// A folder may be swept by somebody else between our making it and our using it, but hardly that often in a row.
const TRIES = 10;

/**
 * The node by which one attempt stands in the queue, from its creation to its removal, within one session.
 *
 * Its name carries an id ("protected", in Curator's word), by which it is found again when the answer to its creation was lost.
 */
export class LockNode {
  #createdAt: bigint | undefined;
  #name: string | undefined;
  #state: 'unsent' | 'unknown' | 'there' | 'gone' = 'unsent';
  #sentAt = -Infinity;
  #isRemovalSent = false;

  constructor(
    readonly session: Session,
    private readonly folders: Folders,
    private readonly folder: string,
    /** `_c_<uuid>-` and the marker of its kind. */
    private readonly prefix: string,
    private readonly now: () => number,
  ) {}

  /** Without the folder; empty before it is known. */
  get name(): string {
    return this.#name ?? '';
  }

  get path(): string {
    return `${this.folder}/${this.name}`;
  }

  /** The zxid of its creation, once it was asked for. */
  get createdAt(): bigint | undefined {
    return this.#createdAt;
  }

  get isThere(): boolean {
    return this.#state === 'there';
  }

  get isUncertain(): boolean {
    return this.#state === 'unknown';
  }

  /** Creates it, and lists the folder in the same round trip. */
  async enter(): Promise<Children> {
    for (let tries = TRIES; ; tries -= 1) {
      const { session, folder } = this;
      if (!this.folders.use(folder, this.now())) session.create(folder, 'persistent').catch(() => undefined);
      this.#state = 'unknown';
      this.#sentAt = this.now();
      const created = session.create(`${folder}/${this.prefix}`, 'ephemeral-sequential');
      const listed = session.children(folder);
      listed.catch(() => undefined);
      try {
        this.#settle((await created).slice(folder.length + 1));
        return await listed;
      } catch (error) {
        if (this.isUncertain && !isFailure(error, 'unanswered')) this.#state = 'gone';
        if (tries === 0 || this.isThere || !isFailure(error, 'no-node')) throw error;
      }
      await session.makePath(folder);
    }
  }

  /**
   * Lists the folder again. Answers null if it is not there; if its answer was lost, because it is not there yet or never will be.
   */
  async find(): Promise<Children | null> {
    try {
      const children = await this.session.children(this.folder);
      if (this.isThere) return children;
      const name = children.names.find((each) => each.startsWith(this.prefix));
      if (name === undefined) return null;
      const stat = await this.session.stat(`${this.folder}/${name}`);
      // Nothing else tells that it lives as long as we do.
      if (stat?.owner !== this.session.id) return null;
      this.#createdAt = stat.createdAt;
      this.#settle(name);
      return children;
    } catch (error) {
      if (isFailure(error, 'no-node')) return null;
      throw error;
    }
  }

  /** Answers the zxid of its creation, if it is there and ours. */
  async inspect(): Promise<bigint | undefined> {
    if (this.#createdAt !== undefined) return this.#createdAt;
    const stat = await this.session.stat(this.path);
    if (stat?.owner !== this.session.id) return undefined;
    this.#createdAt = stat.createdAt;
    return this.#createdAt;
  }

  /**
   * Removes it. Answers whether it was there; `pending` while its creation may still be on its way. To be called again until it
   * is answered otherwise, or the session is over.
   */
  async remove(): Promise<'removed' | 'missing' | 'pending'> {
    this.folders.use(this.folder, this.now());
    if (this.isUncertain && !(await this.find())) {
      // What a broken connection still carried arrives within the life of the session, or not at all.
      if (this.now() - this.#sentAt < this.session.timeout) return 'pending';
      this.#state = 'gone';
    }
    if (this.#state !== 'there') return this.#isRemovalSent ? 'removed' : 'missing';
    const wasSent = this.#isRemovalSent;
    this.#isRemovalSent = true;
    try {
      await this.session.remove(this.path);
    } catch (error) {
      if (!isFailure(error, 'no-node')) throw error;
      this.#isRemovalSent = wasSent;
    }
    this.#state = 'gone';
    return this.#isRemovalSent ? 'removed' : 'missing';
  }

  #settle(name: string): void {
    this.#name = name;
    this.#state = 'there';
  }
}
