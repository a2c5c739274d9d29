import type { SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import type { MemoryStore } from './memory-store.js';

/** One namespace's wait board in a `MemoryStore`. */
export class MemoryWaits implements WaitBoard {
  constructor(
    private readonly store: MemoryStore,
    /** Prefix of the names in this namespace. */
    private readonly prefix: string,
    private readonly provider: string,
    /** This process's instance id. */
    private readonly instance: string,
  ) {}

  serverTime(): Promise<number> {
    return Promise.resolve(this.store.wallTime());
  }

  publish(text: string | null, keepFor: number): Promise<void> {
    const { texts } = this.store;
    const name = this.#nameOf(this.instance);
    if (text === null) texts.delete(name);
    else texts.set(name, text, keepFor);
    return Promise.resolve();
  }

  read(instance: string): Promise<string | null> {
    return Promise.resolve(this.store.texts.get(this.#nameOf(instance)) ?? null);
  }

  holders(key: string, most: number): Promise<readonly SeenGrant[]> {
    const holds = this.store.report(this.prefix + key)?.holds.slice(0, most) ?? [];
    return Promise.resolve(holds.flatMap(({ holder: id, mode }) => (mode === 'limited' ? [] : { id, mode })));
  }

  /** Includes the provider, because two providers of one application may share a store and a namespace. */
  #nameOf(instance: string): string {
    return `${this.prefix}${instance}:${this.provider}`;
  }
}
