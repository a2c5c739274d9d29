const SAVEPOINT = /^\s*savepoint\s+([^\s;]+)/i;
const RELEASE = /^\s*release\s+(?:savepoint\s+)?([^\s;]+)/i;
const ROLLBACK_TO = /^\s*rollback\s+(?:work\s+|transaction\s+)?to\s+(?:savepoint\s+)?([^\s;]+)/i;

/** The savepoints that an application has set in a transaction, as its statements tell. One that is not known is older than all. */
export class Savepoints {
  readonly #names: string[] = [];

  get count(): number {
    return this.#names.length;
  }

  /** How many of them a statement leaves that rolls back to one; undefined for any other statement. */
  leftBy(sql: string): number | undefined {
    const name = ROLLBACK_TO.exec(sql)?.[1];
    return name === undefined ? undefined : this.#names.lastIndexOf(name) + 1;
  }

  /** A statement was run. The end of one, or a rollback to it, is the end of those that were set after it. */
  follow(sql: string): void {
    const set = SAVEPOINT.exec(sql)?.[1];
    if (set !== undefined) this.#names.push(set);
    const released = RELEASE.exec(sql)?.[1];
    if (released !== undefined) this.#names.length = Math.max(this.#names.lastIndexOf(released), 0);
    this.#names.length = this.leftBy(sql) ?? this.#names.length;
  }

  clear(): void {
    this.#names.length = 0;
  }
}
