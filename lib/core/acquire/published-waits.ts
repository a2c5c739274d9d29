import { instanceIdOf } from '../toolkit/instance-ids.js';
import type { PublishedWait, WaitLink } from './circle-search.js';

/** A caller that waits, and the ids of the grants that its owner holds. Callers with one set share the object. */
export interface WaitBesideGrants {
  readonly wait: PublishedWait;
  readonly grants: readonly string[];
}

/** What one process has published. */
export interface WaitRecord {
  /** How often it has published. */
  readonly beat: number;
  /** The waits whose owners hold by this grant, of those that keep a caller with this mode out. */
  linksOf(grant: string, mode: WaitLink['mode']): readonly WaitLink[];
}

const VERSION = 1;
/** A record has so many characters at most: two of them in a second are 64 kB. */
const MOST_TEXT = 32_000;
/** So many grants of one owner are published. */
const MOST_GRANTS = 1_000;
const DIGITS = 20;

/**
 * The record of a process: each set of grants, each key and each method once. What does not fit is left out, so the waits come in the order of their
 * importance.
 */
export class RecordWriter {
  readonly #sets = new Map<readonly string[], number>();
  readonly #texts = new Map<string, number>();
  readonly #setTexts: string[] = [];
  readonly #waits: string[] = [];
  #size = 0;
  #since: number | undefined;

  constructor(
    private readonly instanceId: string,
    private readonly instance: string,
  ) {}

  /** Answers whether it has room. */
  add({ wait: { id, key, mode, since, method }, grants }: WaitBesideGrants): boolean {
    const isNewSet = !this.#sets.has(grants);
    const set = isNewSet ? this.#setOf(grants) : '';
    const place = this.#sets.get(grants) ?? this.#sets.size;
    const texts = [key, ...(method === null ? [] : [method])].filter((text) => !this.#texts.has(text));
    const placeOf = (text: string) => this.#texts.get(text) ?? this.#texts.size + texts.indexOf(text);
    const wanted = [place, placeOf(key), mode === 'shared' ? 1 : 0, since - this.#base(since), method === null ? -1 : placeOf(method)];
    const entry = `${id.slice(id.indexOf('.') + 1)},${wanted.join(',')}`;
    const size = set.length + 3 + entry.length + 1 + texts.reduce((sum, text) => sum + JSON.stringify(text).length + 1, 0);
    if (this.#size + size > MOST_TEXT) return false;
    if (isNewSet) {
      this.#sets.set(grants, place);
      this.#setTexts.push(set);
    }
    for (const text of texts) this.#texts.set(text, this.#texts.size);
    this.#waits.push(entry);
    this.#size += size;
    return true;
  }

  /** The times are written as they differ from the first one. */
  #base(since: number): number {
    return (this.#since ??= since);
  }

  #setOf(grants: readonly string[]): string {
    return grants
      .slice(0, MOST_GRANTS)
      .map((id) => id.slice(-DIGITS))
      .join('');
  }

  text(beat: number): string {
    return JSON.stringify([VERSION, beat, this.#since, this.instance, [...this.#texts.keys()], this.#setTexts, this.#waits.join(';')]);
  }

  get isEmpty(): boolean {
    return this.#waits.length === 0;
  }
}

/** Reads a record. Anybody may have written it who may write to the server, and another version of this package; `undefined` for any other text. */
export function readRecord(instanceId: string, text: string): WaitRecord | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(value) || value.length !== 7) return undefined;
  const [version, beat, base, instance, texts, sets, list] = value as unknown[];
  if (version !== VERSION || typeof beat !== 'number' || typeof base !== 'number' || typeof instance !== 'string' || typeof list !== 'string')
    return undefined;
  if (!isTexts(texts) || !isTexts(sets)) return undefined;
  const bySet = new Map<number, PublishedWait[]>();
  for (const entry of list.split(';')) {
    const [number, set, key, mode, since, method] = entry.split(',').map(Number);
    const awaited = texts[key ?? -1];
    if (awaited === undefined || set === undefined || sets[set] === undefined) return undefined;
    const wait: PublishedWait = {
      id: `${instanceId}.${number}`,
      key: awaited,
      mode: mode === 1 ? 'shared' : 'exclusive',
      since: base + Number(since),
      instance,
      method: texts[method ?? -1] ?? null,
    };
    const there = bySet.get(set);
    if (there) there.push(wait);
    else bySet.set(set, [wait]);
  }
  const links = new Map<string, PublishedWait[]>();
  for (const [set, waits] of bySet) {
    const grants = sets[set] ?? '';
    for (let at = 0; at < grants.length; at += DIGITS) {
      const grant = grants.slice(at, at + DIGITS);
      const there = links.get(grant);
      links.set(grant, there ? [...there, ...waits] : waits);
    }
  }
  return {
    beat,
    linksOf: (grant, mode) =>
      instanceIdOf(grant) === instanceId
        ? (links.get(grant.slice(-DIGITS)) ?? []).map((wait) => ({ grant, mode, wait, beat }))
        : [],
  };
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((text) => typeof text === 'string');
}

