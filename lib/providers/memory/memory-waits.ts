import type { GrantText, SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import type { MemoryStore } from './memory-store.js';

/** The texts beside grants in a `MemoryStore`. */
export class MemoryWaits implements WaitBoard {
  constructor(
    private readonly store: MemoryStore,
    /** Begins the names of this namespace. */
    private readonly prefix: string,
  ) {}

  serverTime(): Promise<number> {
    return Promise.resolve(this.store.wallTime());
  }

  write(texts: readonly GrantText[], keepFor: number): Promise<readonly string[]> {
    const all = this.store.texts;
    const now = this.store.wallTime();
    // Those of an application that has ended without removing them.
    for (const [id, { until }] of all) if (until <= now) all.delete(id);
    for (const { id, text } of texts) {
      if (text === null) all.delete(id);
      else all.set(id, { text, until: now + keepFor });
    }
    return Promise.resolve([]);
  }

  look(key: string, most: number): Promise<readonly SeenGrant[]> {
    const found = this.store.report(this.prefix + key);
    const now = this.store.wallTime();
    const seen: SeenGrant[] = [];
    for (const { holder: id, mode } of found?.holds.slice(0, most) ?? []) {
      if (mode === 'limited') continue;
      const beside = this.store.texts.get(id);
      seen.push({ id, mode, text: beside && now < beside.until ? beside.text : null });
    }
    return Promise.resolve(seen);
  }
}
