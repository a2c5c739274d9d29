import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';
import type { RequestContext } from './request-context.js';
import { folderContentFor, isHashed, keyIn, type LockPaths, segmentOf } from './lock-path.js';
import type { NodeValue } from './socket-client.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-failure.js';

/** The server interprets this as "any version". A node's version reaches this value once every 2^32 writes. */
const ANY_VERSION = -1;

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
    return this.context.attempt(`Record "${name}"`, async () => {
      const { session } = this.context;
      const serverTime = await session.heartbeat();
      const node = await session.client.read(this.#nodeOf(name));
      return { value: node && node.data.toString().slice(this.#headOf(name).length), serverTime };
    });
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    return this.context.attempt(`Record "${name}"`, async () => {
      const head = this.#headOf(name);
      const { value, serverTime } = await this.#exchange(
        this.#nodeOf(name),
        expected === null ? null : head + expected,
        head + next,
      );
      return { value: value && value.slice(head.length), serverTime };
    });
  }

  list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    const { context } = this;
    const subject = 'The list of records';
    return context.list(subject, this.folder, (segment) =>
      context.attempt(subject, async () => {
        const node = await context.session.client.read(`${this.folder}/${segment}`);
        return node && this.#recordIn(segment, node.data.toString());
      }),
    );
  }

  /** Returns null if the node is not a record. */
  #recordIn(segment: string, content: string): { readonly name: string; readonly value: string } | null {
    const [head = ''] = content.split('\n', 1);
    const name = isHashed(segment) ? keyIn(Buffer.from(head), segment) : this.paths.keyOf(segment);
    if (name === undefined || segmentOf(name) !== segment) return null;
    return { name, value: content.slice(this.#headOf(name).length) };
  }

  /**
   * Sets the node to `next` if it contains `expected` or already contains `next`. Returns the resulting content.
   *
   * This is linearizable. Creates and conditional writes are ordered by the quorum and acknowledged by a majority. A
   * read may be stale, because each server responds from its own copy, but then the conditional write fails. Before a
   * possibly stale value is returned, a write is sent, because a later read on the same connection is at least as
   * recent. If a write gets no response, its outcome is unknown.
   */
  async #exchange(path: string, expected: string | null, next: string): Promise<StoredRecord> {
    const { session } = this.context;
    let beatAt: number | undefined;
    for (let isFresh = false; ; isFresh = true) {
      const node = await session.client.read(path);
      const found = node && node.data.toString();
      if (found === expected || found === next) {
        const writtenAt = await this.#write(path, node, Buffer.from(next));
        if (writtenAt !== null) return { value: next, serverTime: writtenAt ?? (await session.heartbeat()) };
        // A failed condition is also decided by the quorum, so the next read is fresh.
      } else if (isFresh) return { value: found, serverTime: beatAt ?? (await session.heartbeat()) };
      else beatAt = await session.heartbeat();
    }
  }

  /** Resolves to the time of the write, which a create doesn't return, or to null if another writer was faster. */
  async #write(path: string, node: NodeValue | null, data: Buffer): Promise<number | undefined | null> {
    const { session } = this.context;
    if (node?.version === ANY_VERSION) {
      throw new ZooKeeperFailure(
        'refused',
        `The version counter of ${path} is full. Stop all instances, then delete the node.`,
      );
    }
    try {
      if (node) return await session.client.write(path, data, node.version);
      await session.createWithParents(path, 'persistent', data);
      return undefined;
    } catch (error) {
      if (isFailure(error, 'changed', 'exists', 'no-node')) return null;
      throw error;
    }
  }

  #nodeOf(name: string): string {
    return `${this.folder}/${segmentOf(name)}`;
  }

  /** The prefix of the text in this record's node. */
  #headOf(name: string): string {
    const content = folderContentFor(this.#nodeOf(name), name);
    return content === undefined ? '' : `${content.toString()}\n`;
  }
}
