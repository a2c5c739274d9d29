import type { BackendContext, RecordStore, StoredRecord } from '../../api/lock-provider.js';
import type { OperationArguments } from './client/batcher.js';
import type { KeyLayout } from './key-layout.js';
import type { RedisServers } from './redis-servers.js';
import { notListed, recordUnavailable } from './unavailable.js';

/** How long a record lives after its last write, in ms: 400 days, so a yearly job's record survives. */
const RECORD_TTL = String(400 * 86_400_000);
const ANSWER = /^(\d{13})(?:=(.*))?$/s;
/** How many records a listing reads in parallel. */
const READS = 32;

/**
 * A namespace's job records, each stored as a string. Every operation is one script call, which also returns the
 * server's time.
 *
 * A record is as durable as a lock. With `waitReplicas`, everything written or read has reached that many replicas. To
 * ensure this, a read also sets the expiry, because `WAIT` only covers writes on its own connection.
 */
export class RedisRecords implements RecordStore {
  constructor(
    private readonly context: BackendContext,
    private readonly servers: RedisServers,
    private readonly layout: KeyLayout,
    private readonly isReplicated: boolean,
  ) {}

  read(name: string): Promise<StoredRecord> {
    return this.#run(name, ['r', '', this.isReplicated ? RECORD_TTL : '0']);
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    return this.#run(name, [expected === null ? '-' : `=${expected}`, next, RECORD_TTL]);
  }

  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    try {
      for await (const keys of this.servers.scan(this.layout.patternOfRecords)) {
        const names = keys.map((key) => this.layout.recordIn(key)).filter((name) => name !== undefined);
        for (let at = 0; at < names.length; at += READS) {
          const reads = names.slice(at, at + READS).map(async (name) => ({ name, ...(await this.read(name)) }));
          for (const { name, value } of await Promise.all(reads)) if (value !== null) yield { name, value };
        }
      }
    } catch (cause) {
      throw notListed(this.context.name, 'records', cause);
    }
  }

  async #run(name: string, fields: OperationArguments): Promise<StoredRecord> {
    const lock = this.layout.recordOf(name);
    try {
      return readRecord(await this.servers.shardOf(lock).recorder.run(lock, fields));
    } catch (cause) {
      throw recordUnavailable(this.context.name, name, cause);
    }
  }
}

/** Parses `time` or `time '=' value`. */
function readRecord(reply: unknown): StoredRecord {
  const [, time, value = null] = ANSWER.exec(String(reply)) ?? [];
  if (time === undefined) throw new Error('The reply from the record script is invalid.');
  return { value, serverTime: Number(time) };
}
