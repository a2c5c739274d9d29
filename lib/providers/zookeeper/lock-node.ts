import type { Clock } from '../../api/clock.js';
import type { Folders } from './folders.js';
import type { Session } from './session.js';
import { isFailure, type ZooKeeperFailure } from './zookeeper-failure.js';

// Another process may remove the empty folder between our two requests, but is unlikely to do so this many times in a
// row.
const TRIES = 10;

/**
 * Manages one request's queue node, from creation to removal, within one session.
 *
 * Its name contains a unique id (Curator calls this "protected"), so the node can be found even if the reply to its
 * creation was lost.
 */
export class LockNode {
  #createdAt = 0n;
  #name = '';
  #state: 'unknown' | 'there' | 'gone' = 'gone';
  #isRemovalSent = false;
  #refusal: ZooKeeperFailure | undefined;

  constructor(
    readonly session: Session,
    private readonly folders: Folders,
    private readonly folder: string,
    /** `_c_<uuid>-` followed by the lock mode's marker. */
    private readonly prefix: string,
    private readonly clock: Clock,
    /** The folder's content. Default: the creating instance. */
    private readonly folderContent?: Buffer,
  ) {}

  /** The node's name within the folder; empty until known. */
  get name(): string {
    return this.#name;
  }

  get path(): string {
    return `${this.folder}/${this.name}`;
  }

  /** The zxid of the node's creation; 0 until known. */
  get createdAt(): bigint {
    return this.#createdAt;
  }

  get isThere(): boolean {
    return this.#state === 'there';
  }

  get isUncertain(): boolean {
    return this.#state === 'unknown';
  }

  /** Creates the node and lists the folder in the same round trip. */
  async enter(): Promise<readonly string[]> {
    for (let tries = TRIES; ; tries -= 1) {
      const { session, folder, folderContent } = this;
      if (!this.folders.use(folder, this.clock.now())) {
        session.client.create(folder, 'persistent', folderContent).catch(() => undefined);
      }
      this.#state = 'unknown';
      const created = session.client.create(`${folder}/${this.prefix}`, 'ephemeral-sequential');
      const listed = session.client.children(folder);
      listed.catch(() => undefined);
      try {
        const { path, createdAt } = await created;
        this.#settle(path.slice(folder.length + 1), createdAt);
        return await listed;
      } catch (error) {
        if (this.isUncertain && !isFailure(error, 'unanswered')) this.#state = 'gone';
        if (tries === 0 || this.isThere || !isFailure(error, 'no-node')) throw error;
      }
      await session.makePath(folder, folderContent);
    }
  }

  /**
   * Lists the folder again. Resolves to null if the node does not exist and never will.
   *
   * @param onChange called once when another node is created or removed
   */
  async find(onChange?: () => void): Promise<readonly string[] | null> {
    // An unanswered create may still be in flight. When the session moves to another connection, the servers close or
    // reject the old one (3.8: `processConnectRequest`, `checkSession`), so any create that reached them precedes this
    // write.
    if (!this.isThere) await this.session.heartbeat();
    const { session, folder } = this;
    const names = await session.client.children(folder, onChange);
    if (this.isThere) return names;
    const name = names.find((each) => each.startsWith(this.prefix));
    if (name === undefined) return null;
    const stat = await this.session.client.stat(`${this.folder}/${name}`);
    // Only a node owned by our session is guaranteed to live as long as the session.
    if (stat?.owner !== this.session.client.sessionId) return null;
    this.#settle(name, stat.createdAt);
    return names;
  }

  /**
   * Removes the node and resolves to whether it existed. If it rejects, call it again until it resolves or the session
   * ends. A refusal is final and is rethrown without another request, because retries would only add load.
   */
  async remove(): Promise<'removed' | 'missing'> {
    if (this.#refusal) throw this.#refusal;
    this.folders.use(this.folder, this.clock.now());
    if (this.isUncertain && !(await this.find())) this.#state = 'gone';
    if (this.#state !== 'there') return this.#isRemovalSent ? 'removed' : 'missing';
    const wasSent = this.#isRemovalSent;
    this.#isRemovalSent = true;
    try {
      if (!(await this.session.client.remove(this.path))) this.#isRemovalSent = wasSent;
    } catch (error) {
      if (isFailure(error, 'refused')) this.#refusal = error;
      throw error;
    }
    this.#state = 'gone';
    return this.#isRemovalSent ? 'removed' : 'missing';
  }

  #settle(name: string, createdAt: bigint): void {
    this.#name = name;
    this.#createdAt = createdAt;
    this.#state = 'there';
  }
}
