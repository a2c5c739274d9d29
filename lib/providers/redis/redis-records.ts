import type { BackendContext, RecordStore, StoredRecord } from '../../api/lock-provider.js';
import { HEAVY, type OperationArguments } from './client/batcher.js';
import type { KeyLayout } from './key-layout.js';
import type { RedisServers } from './redis-servers.js';
import { recordsNotListed, recordUnavailable } from './unavailable.js';

/** For how long a record is kept after its last write, in ms: 400 days, so that a job that runs once a year is remembered. */
const KEEP = String(400 * 86_400_000);
const ANSWER = /^(\d{13})(?:=(.*))?$/s;
/** How many records are read at a time for a list. */
const READS = 32;

/**
 * The records of a namespace: a string for each. Each operation is one script call, with the time of the server that ran it.
 *
 * A record is as durable as a lock. With `waitReplicas` as many replicas have what was written, and also what was read: a read then
 * writes the expiry, because `WAIT` covers only writes of its own connection.
 */
export class RedisRecords implements RecordStore {
  /** @param ups how often a server was connected or took over */
  constructor(
    private readonly context: BackendContext,
    private readonly servers: RedisServers,
    private readonly layout: KeyLayout,
    private readonly isReplicated: boolean,
    private readonly ups: () => number,
  ) {}

  read(name: string): Promise<StoredRecord> {
    return this.#run(name, ['r', '', this.isReplicated ? KEEP : '0']);
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    return this.#run(name, [expected === null ? '-' : `=${expected}`, next, KEEP]);
  }

  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    const ups = this.ups();
    try {
      for await (const keys of this.servers.scan(this.layout.patternOfRecords)) {
        const names = keys.map((key) => this.layout.recordIn(key)).filter((name) => name !== undefined);
        for (let at = 0; at < names.length; at += READS) {
          const reads = names.slice(at, at + READS).map(async (name) => ({ name, ...(await this.read(name)) }));
          for (const { name, value } of await Promise.all(reads)) if (value !== null) yield { name, value };
        }
      }
      // The cursor of one server means nothing to another, and records that moved with their slot may have been missed.
      if (this.ups() !== ups) throw new Error('A connection was made again meanwhile.');
    } catch (cause) {
      throw recordsNotListed(this.context.name, cause);
    }
  }

  async #run(name: string, fields: OperationArguments): Promise<StoredRecord> {
    const lock = this.layout.recordOf(name);
    const batcher = this.servers.shardOf(lock).recorder;
    try {
      const reply = await new Promise((onReply, onFailure) => {
        batcher.add({ lock, weight: HEAVY, encode: () => fields, onReply, onFailure });
      });
      return readRecord(reply);
    } catch (cause) {
      throw recordUnavailable(this.context.name, name, cause);
    }
  }
}

/** Reads `time` or `time '=' value`. */
function readRecord(reply: unknown): StoredRecord {
  const [, time, value = null] = ANSWER.exec(String(reply)) ?? [];
  if (time === undefined) throw new Error('This is no answer of the script of records.');
  return { value, serverTime: Number(time) };
}
