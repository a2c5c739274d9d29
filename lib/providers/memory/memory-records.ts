import type { Clock } from '../../api/clock.js';
import type { RecordStore, StoredRecord } from '../../api/lock-provider.js';

/** The records of one namespace in a `MemoryStore`. */
export class MemoryRecords implements RecordStore {
  constructor(
    /** The values of all namespaces. */
    private readonly values: Map<string, string>,
    /** Begins the names of this namespace. */
    private readonly prefix: string,
    private readonly clock: Clock,
  ) {}

  read(name: string): Promise<StoredRecord> {
    const value = this.values.get(this.prefix + name) ?? null;
    return Promise.resolve({ value, serverTime: this.clock.wallTime() });
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    const found = this.values.get(this.prefix + name) ?? null;
    if (found === expected) this.values.set(this.prefix + name, next);
    return Promise.resolve({ value: found === expected ? next : found, serverTime: this.clock.wallTime() });
  }

  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    await Promise.resolve();
    for (const [name, value] of [...this.values]) {
      if (name.startsWith(this.prefix)) yield { name: name.slice(this.prefix.length), value };
    }
  }
}
