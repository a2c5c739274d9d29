import type { Clock } from '../../api/clock.js';
import type { Folders } from './folders.js';
import type { Session } from './session.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-client.js';

// Another process may remove an empty folder between our creating it and our using it, but hardly that often in a row.
const TRIES = 10;

/**
 * The node of one request in the queue, from its creation to its removal, within one session.
 *
 * Its name contains an id (Curator calls this "protected"), by which it is found again when the answer to its creation was lost.
 */
export class LockNode {
  #createdAt = 0n;
  #name = '';
  #state: 'unsent' | 'unknown' | 'there' | 'gone' = 'unsent';
  #isRemovalSent = false;
  #refusal: ZooKeeperFailure | undefined;

  constructor(
    readonly session: Session,
    private readonly folders: Folders,
    private readonly folder: string,
    /** `_c_<uuid>-` and the marker of its kind. */
    private readonly prefix: string,
    private readonly clock: Clock,
    /** The content of the folder; default: the instance that makes it. */
    private readonly folderContent?: Buffer,
  ) {}

  /** Without the folder; empty before it is known. */
  get name(): string {
    return this.#name;
  }

  get path(): string {
    return `${this.folder}/${this.name}`;
  }

  /** The zxid of its creation; 0 before it is known. */
  get createdAt(): bigint {
    return this.#createdAt;
  }

  get isThere(): boolean {
    return this.#state === 'there';
  }

  get isUncertain(): boolean {
    return this.#state === 'unknown';
  }

  /** Creates it, and lists the folder in the same round trip. */
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
   * Lists the folder again. Answers null if the node does not exist, and will not.
   *
   * @param onChange called once when another node comes or goes
   */
  async find(onChange?: () => void): Promise<readonly string[] | null> {
    try {
      // A creation that was not answered may be in flight. The servers close or refuse the connection that carried it when the session
      // moves to another connection (3.8: `processConnectRequest`, `checkSession`), so every creation that arrived precedes this write.
      if (!this.isThere) await this.session.heartbeat();
      const { session, folder } = this;
      const names = await session.client.children(folder, onChange);
      if (this.isThere) return names;
      const name = names.find((each) => each.startsWith(this.prefix));
      if (name === undefined) return null;
      const stat = await this.session.client.stat(`${this.folder}/${name}`);
      // Nothing else proves that it lives as long as our session.
      if (stat?.owner !== this.session.id) return null;
      this.#settle(name, stat.createdAt);
      return names;
    } catch (error) {
      if (isFailure(error, 'no-node')) return null;
      throw error;
    }
  }

  /** Notifies those who watch it. Answers whether it exists. */
  async touch(): Promise<boolean> {
    try {
      await this.session.client.write(this.path);
      return true;
    } catch (error) {
      if (isFailure(error, 'no-node')) return false;
      throw error;
    }
  }

  /**
   * Removes it. Answers whether it existed. To be called again until it answers, or the session is over. A refusal is final: it is
   * thrown again without a request, because retries of many nodes would only load the server.
   */
  async remove(): Promise<'removed' | 'missing'> {
    if (this.#refusal) throw this.#refusal;
    this.folders.use(this.folder, this.clock.now());
    if (this.isUncertain && !(await this.find())) this.#state = 'gone';
    if (this.#state !== 'there') return this.#isRemovalSent ? 'removed' : 'missing';
    const wasSent = this.#isRemovalSent;
    this.#isRemovalSent = true;
    try {
      await this.session.client.remove(this.path);
    } catch (error) {
      if (error instanceof ZooKeeperFailure && error.kind === 'refused') this.#refusal = error;
      if (!isFailure(error, 'no-node')) throw error;
      this.#isRemovalSent = wasSent;
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
