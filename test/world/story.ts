import type { Timeline } from './timeline.js';

/** What happened, as a hash and, if requested, in words. */
export class Story {
  readonly lines: string[] = [];
  #hash = 0x811c9dc5;

  constructor(
    private readonly timeline: Timeline,
    private readonly keepsLines: boolean,
  ) {}

  /** Equal for two runs with the same events. */
  get hash(): string {
    return (this.#hash >>> 0).toString(16).padStart(8, '0');
  }

  note(what: string): void {
    const line = `${this.timeline.now.toFixed(3)} ${what}`;
    for (let index = 0; index < line.length; index += 1) {
      this.#hash = Math.imul(this.#hash ^ line.charCodeAt(index), 0x01000193);
    }
    if (this.keepsLines) this.lines.push(line);
  }
}
