import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';
import type { RequestContext } from './request-context.js';
import { exchange } from './exchange.js';
import { folderContentFor, isHashed, keyIn, type LockPaths, segmentOf } from './lock-path.js';
import { isFailure } from './zookeeper-client.js';

/** How many records a list reads at a time, ahead of its reader. */
const AHEAD = 32;

/**
 * The records in a folder: a persistent node for each, changed on condition of its version.
 *
 * Their time is that of the leader, or of the only server: it dates each write, and ZooKeeper answers no other time. So before a read, and
 * after a creation, the session writes its own node, which all who ask at the same time share. A read behind that write, on the same
 * connection, is also at least as new.
 *
 * The name of a node may be a hash. Such a node contains its name, then a line break, then the text.
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

  /** All names come in one answer, since the server has no pages. */
  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    const { context } = this;
    const segments = await this.#operate('The list of records', async () => {
      // A server that is behind its leader would miss the latest records.
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

  /** Answers undefined for a node that is gone, or that is no record. */
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

  /** The bytes before the text in the node of this name. */
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
