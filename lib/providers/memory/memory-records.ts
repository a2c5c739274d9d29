import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';
import type { MemoryStore } from './memory-store.js';

/** One namespace's job records in a `MemoryStore`. */
export class MemoryRecords implements RecordStore {
  constructor(
    private readonly store: MemoryStore,
    /** Prefix of the names in this namespace. */
    private readonly prefix: string,
  ) {}

  read(name: string): Promise<StoredRecord> {
    return Promise.resolve(this.#stored(name));
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    if (this.#stored(name).value === expected) this.store.records.set(this.prefix + name, next);
    return Promise.resolve(this.#stored(name));
  }

  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    await Promise.resolve();
    for (const [name, value] of this.store.records.entries()) {
      if (name.startsWith(this.prefix)) yield { name: name.slice(this.prefix.length), value };
    }
  }

  #stored(name: string): StoredRecord {
    return { value: this.store.records.get(this.prefix + name) ?? null, serverTime: this.store.wallTime() };
  }
}
