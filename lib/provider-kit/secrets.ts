import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import type { LockLogger } from '../api/logger.js';
import type { Random } from '../api/random.js';
import { systemRandom } from '../core/toolkit/random.js';

const INSTANCE_DIGITS = 12;

/**
 * Records generated ids and reported text to find leaked ids: anyone who knows a holder's id can release its lock.
 */
export class Secrets implements Random, LockLogger {
  readonly #random = systemRandom();
  /** The ids without their first 12 digits, which identify the instance and aren't secret. */
  readonly #ids: string[] = [];
  readonly #said: string[] = [];

  id(): string {
    const id = this.#random.id();
    this.#ids.push(id.slice(INSTANCE_DIGITS));
    return id;
  }

  fraction(): number {
    return this.#random.fraction();
  }

  debug(message: string): void {
    this.#said.push(message);
  }

  warn(message: string): void {
    this.#said.push(message);
  }

  error(message: string): void {
    this.#said.push(message);
  }

  /** Records something people can see: an event, an error with its causes, or a reply to an operator. */
  overheard(something: unknown): void {
    this.#said.push(textOf(something));
  }

  assertKept(): void {
    const reported = this.#said.join('\n');
    // Searching the whole text for each id would be slow after a thousand loops, so extract candidate ids from the
    // text.
    const candidates = new Set(reported.match(/[0-9a-f]{32}/g)?.map((id) => id.slice(INSTANCE_DIGITS)));
    const leaked = this.#ids.filter((id) => candidates.has(id));
    assert.deepEqual(
      leaked,
      [],
      `Holder ids were reported in: ${leaked.map((id) => lineWith(this.#said, id)).join('; ')}`,
    );
  }
}

/** Everything about a value that a log could show: message, stack, causes, properties of any kind, and JSON. */
export function textOf(something: unknown): string {
  const options = { depth: 10, showHidden: true, getters: true, maxStringLength: null, maxArrayLength: null } as const;
  return `${inspect(something, options)}\n${JSON.stringify(something)}`;
}

function lineWith(lines: readonly string[], id: string): string {
  return lines.find((line) => line.includes(id)) ?? '';
}
