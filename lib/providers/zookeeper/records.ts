import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';
import type { RequestContext } from './request-context.js';
import { exchange } from './exchange.js';
import { folderContentFor, isHashed, keyIn, type LockPaths, segmentOf } from './lock-path.js';
import { isFailure } from './zookeeper-client.js';

/** How many records a list reads at a time. */
const AHEAD = 32;

/**
 * Records in a folder. Each is a persistent node whose changes are conditional on its version.
 *
 * `serverTime` comes from the clock of the leader (or standalone server), which ZooKeeper reveals only as the time of a
 * write. So before a read, and after a create, the session writes to its own node. Concurrent callers share that write.
 * A read that follows it on the same connection is at least as recent.
 *
 * If the node name is a hash, the content starts with the record's name and a line break.
 */
export class ZooKeeperRecords implements RecordStore {
  constructor(
    private readonly context: RequestContext,
    private readonly paths: LockPaths,
    private readonly folder: string,
  ) {}

  read(name: string): Promise<StoredRecord> {
    return this.#operate(`Record "${name}"`, async () => {
      const { session } = this.context;
      const serverTime = await session.heartbeat();
      const node = await session.client.read(this.#nodeOf(name));
      return { value: node && node.data.toString().slice(this.#headOf(name).length), serverTime };
    });
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    return this.#operate(`Record "${name}"`, async () => {
      const { session } = this.context;
      const head = this.#headOf(name);
      const before = expected === null ? null : head + expected;
      const { value, writtenAt } = await exchange(session, this.#nodeOf(name), before, head + next);
      const serverTime = writtenAt ?? (await session.heartbeat());
      return { value: value && value.slice(head.length), serverTime };
    });
  }

  /** Reads all names at once, because the server has no pagination. */
  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    const { context } = this;
    const segments = await this.#operate('The list of records', async () => {
      // Write first, or a server that lags behind its leader would miss the latest records.
      await context.session.heartbeat();
      return context.session.client.children(this.folder).catch((error: unknown) => {
        if (isFailure(error, 'no-node')) return [];
        throw error;
      });
    });
    for (let at = 0; at < segments.length; at += AHEAD) {
      const reads = segments.slice(at, at + AHEAD).map((segment) => this.#readSegment(segment));
      for (const record of await Promise.all(reads)) if (record) yield record;
    }
  }

  /** Resolves to undefined if the node is gone or not a record. */
  #readSegment(segment: string): Promise<{ readonly name: string; readonly value: string } | undefined> {
    return this.#operate('The list of records', async () => {
      const node = await this.context.session.client.read(`${this.folder}/${segment}`);
      if (!node) return undefined;
      const content = node.data.toString();
      const [head = ''] = content.split('\n', 1);
      const name = isHashed(segment) ? keyIn(Buffer.from(head), segment) : this.paths.keyOf(segment);
      if (name === undefined || segmentOf(name) !== segment) return undefined;
      return { name, value: content.slice(this.#headOf(name).length) };
    });
  }

  #nodeOf(name: string): string {
    return `${this.folder}/${segmentOf(name)}`;
  }

  /** The prefix of the text in this record's node. */
  #headOf(name: string): string {
    const content = folderContentFor(this.#nodeOf(name), name);
    return content === undefined ? '' : `${content.toString()}\n`;
  }

  async #operate<T>(what: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (cause) {
      throw this.context.unavailableSubject(what, cause);
    }
  }
}
