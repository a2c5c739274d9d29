import { isInstanceName } from '../../api/printable.js';
import { MAX_KEY_BYTES } from '../../key/lock-key.js';
import { instanceIdOf } from '../toolkit/instance-ids.js';
import type { PublishedWait, WaitLink } from './cycle-search.js';
import { isMethodName } from './trace-label-text.js';

/** The record that one process has published. */
export interface WaitRecord {
  /** How many records the process has published. */
  readonly beat: number;
  /** The waits of this grant's owner. `mode`: the grant's mode. */
  linksOf(grant: string, mode: WaitLink['mode']): readonly WaitLink[];
}

const VERSION = 1;
/**
 * The maximum length of a record in characters. A process writes two records per second, so it sends at most 64 kB per
 * second.
 */
const MAX_LENGTH = 32_000;
/** The maximum number of grants published per owner. */
const MAX_GRANTS = 1_000;
/** The length of a grant's id without the process's id, which is not repeated. */
const GRANT_DIGITS = 20;

/**
 * Writes a process's record. Each set of grants, each key, and each method is written only once, and times are relative
 * to the first. Waits that don't fit are left out, so add the important ones first.
 */
export class WaitRecordWriter {
  readonly #sets = new Map<string, number>();
  readonly #texts = new Map<string, number>();
  readonly #waits: string[] = [];
  #size = 0;
  #firstSince: number | undefined;

  /** @returns whether the wait fits in the record */
  add({ id, key, mode, since, method }: PublishedWait, grants: readonly string[]): boolean {
    const set = grants
      .slice(0, MAX_GRANTS)
      .map((grant) => grant.slice(-GRANT_DIGITS))
      .join('');
    const newTexts = [...new Set(method === null ? [key] : [key, method])].filter((text) => !this.#texts.has(text));
    const placeOf = (text: string): number => this.#texts.get(text) ?? this.#texts.size + newTexts.indexOf(text);
    this.#firstSince ??= since;
    const wait = [
      id.slice(id.indexOf('.') + 1),
      this.#sets.get(set) ?? this.#sets.size,
      placeOf(key),
      mode === 'shared' ? 1 : 0,
      since - this.#firstSince,
      method === null ? -1 : placeOf(method),
    ].join(',');
    let size = this.#size + wait.length + 1;
    if (!this.#sets.has(set)) size += set.length + 3;
    for (const text of newTexts) size += JSON.stringify(text).length + 1;
    if (size > MAX_LENGTH) return false;
    if (!this.#sets.has(set)) this.#sets.set(set, this.#sets.size);
    for (const text of newTexts) this.#texts.set(text, this.#texts.size);
    this.#waits.push(wait);
    this.#size = size;
    return true;
  }

  /** @returns the record, or `null` if there are no waits */
  text(beat: number, instance: string): string | null {
    if (this.#waits.length === 0) return null;
    const texts = [...this.#texts.keys()];
    return JSON.stringify([
      VERSION,
      beat,
      this.#firstSince,
      instance,
      texts,
      [...this.#sets.keys()],
      this.#waits.join(';'),
    ]);
  }
}

/**
 * Parses a process's record.
 *
 * @returns `undefined` if the text is not a valid record: it may come from any client of the server or from another
 * version of this package
 */
export function readWaitRecord(instanceId: string, text: string): WaitRecord | undefined {
  const value = parsed(text);
  if (!Array.isArray(value)) return undefined;
  const [version, beat, firstSince, instance, texts, sets, waits] = value as unknown[];
  if (version !== VERSION || !isCount(beat) || !isCount(firstSince) || !isInstanceName(instance)) return undefined;
  if (!isTexts(texts) || !isTexts(sets) || typeof waits !== 'string') return undefined;
  const waitsOf = new Map<string, PublishedWait[]>();
  for (const entry of waits.split(';')) {
    const [number, set, key, mode, since, method] = entry.split(',').map(Number);
    const wait = {
      id: `${instanceId}.${number}`,
      key: texts[key ?? -1],
      mode: mode === 1 ? ('shared' as const) : ('exclusive' as const),
      since: firstSince + (since ?? NaN),
      instance,
      method: method === -1 ? null : texts[method ?? -1],
    };
    const grants = sets[set ?? -1];
    if (!isCount(number) || !isCount(wait.since) || !isWait(wait) || grants === undefined) return undefined;
    for (let at = 0; at < grants.length; at += GRANT_DIGITS) {
      const grant = grants.slice(at, at + GRANT_DIGITS);
      const others = waitsOf.get(grant);
      if (others) others.push(wait);
      else waitsOf.set(grant, [wait]);
    }
  }
  return {
    beat,
    linksOf(grant, mode) {
      if (instanceIdOf(grant) !== instanceId) return [];
      return (waitsOf.get(grant.slice(-GRANT_DIGITS)) ?? []).map((wait) => ({ grant, mode, wait, beat }));
    },
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((text) => typeof text === 'string');
}

/** Checks the types and lengths. Keys may contain any characters, because errors and logs escape them. */
function isWait(
  wait: Omit<PublishedWait, 'key' | 'method'> & Record<'key' | 'method', string | null | undefined>,
): wait is PublishedWait {
  const { key, method } = wait;
  return (
    typeof key === 'string' && key !== '' && key.length <= MAX_KEY_BYTES && (method === null || isMethodName(method))
  );
}
