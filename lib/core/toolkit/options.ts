import { type DurationBounds, durationInWords, millisecondsOf } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import { meantBy, nearest } from './nearest.js';
import { refuseUnsetPart, refuseUnsetWithin } from './unset.js';

/** The class or function that takes the options, for error messages. */
export interface Owner {
  /** Omitted for lock options, because the caller adds the place (a call, a decorator, or a class). */
  readonly name?: string | undefined;
  /** A correct call. */
  readonly example?: string | undefined;
  /** Returns the replacement for another package's option. */
  readonly foreign?: (name: string) => string | undefined;
  /** Exactly one of these options is required. */
  readonly oneOf?: readonly string[];
  /** A hint about where unknown options belong. */
  readonly others?: string;
  /** The lock provider's name, for errors. */
  readonly provider?: string | undefined;
  /** The outer option, if these are nested options. */
  readonly within?: string | undefined;
}

/** All options of `O`. The type ensures that no option is missing. */
export type OptionTable<O> = { readonly [K in keyof O]-?: Option<unknown> };
type Table = Readonly<Record<string, Option<unknown>>>;

/** The options, checked and complete. Durations are in ms. */
export type Settings<T> = { readonly [K in keyof T]: T[K] extends Option<infer V> ? V : never };

/** Returns `undefined` for an invalid value, or throws by calling {@link refuse}. */
export type Parse<T> = (value: unknown, owner: Owner, name: string) => T | undefined;

interface Traits {
  readonly default?: unknown;
  readonly isRequired?: boolean;
  /**
   * Whether an explicit `undefined` is an error. Set for options that select a server, a user, or the locks themselves.
   */
  readonly isWritten?: boolean;
  /** Whether the value may be or contain a password. */
  readonly isSecret?: boolean;
  /** Whether the value contains another library's options. */
  readonly isForeign?: boolean;
  /** How to convert an environment variable's text to the option's type. */
  readonly convert?: string;
}

/** An option's check and its default value. */
export class Option<T> {
  constructor(
    /** Completes the sentence "must be ...". */
    readonly wanted: string,
    private readonly parse: Parse<T>,
    readonly traits: Traits = {},
  ) {}

  /** Sets the default. */
  or(value: unknown): Option<Exclude<T, undefined>> {
    return this.#with({ default: this.parse(value, {}, '') });
  }

  required(): Option<Exclude<T, undefined>> {
    return this.#with({ isRequired: true });
  }

  /**
   * Rejects an explicit `undefined`, such as `url: process.env.URL` with an unset variable. A default would hide that
   * mistake.
   */
  written(): Option<T> {
    return this.#with({ isWritten: true });
  }

  /** @throws LockConfigError */
  read(value: unknown, owner: Owner, name: string): T {
    if (value === undefined && !this.traits.isRequired) return this.traits.default as T;
    const parsed = this.parse(value, owner, name);
    return parsed === undefined ? this.refuse(value, owner, name) : parsed;
  }

  /** @throws LockConfigError that names the place, the value, and what is allowed */
  refuse(value: unknown, owner: Owner, name: string, more = ''): never {
    const { isSecret, convert } = this.traits;
    const remedy = typeof value === 'string' && convert !== undefined ? `: convert the text, as with ${convert}` : '';
    return refuse(
      owner,
      name,
      `is ${isSecret ? described(value) : shown(value)}, but must be ${this.wanted}${remedy}.${more}`,
    );
  }

  #with(traits: Traits): Option<never> {
    return new Option(this.wanted, this.parse, { ...this.traits, ...traits }) as Option<never>;
  }
}

/** Rejects an option. The message names the option, followed by `why`. @throws LockConfigError */
export function refuse(owner: Owner, name: string, why: string): never {
  const path = owner.within === undefined ? name : `${owner.within}.${name}`;
  throw configError(owner, `${owner.name === undefined ? 'Option ' : `${owner.name}: `}"${path}" ${why}`);
}

/** Accepts any value. The code that uses it checks it. */
export function anything<T = unknown>(): Option<T | undefined> {
  return option('given', (value) => value as T);
}

export function option<T>(wanted: string, parse: Parse<T>, traits?: Traits): Option<T | undefined> {
  return new Option<T | undefined>(wanted, parse, traits);
}

/** A string or an object that may contain a password, such as an address. Error messages don't show it. */
export function secret<T = string>(wanted: string, parse: Parse<T>): Option<T | undefined> {
  return option(wanted, parse, { isSecret: true });
}

/** Options passed through to another library. Rejects only an explicit `undefined` in them. */
export function foreign<T>(wanted: string, parse: Parse<T>): Option<T | undefined> {
  return option(wanted, parse, { isSecret: true, isForeign: true });
}

export function duration(bounds: DurationBounds = {}): Option<number | undefined> {
  return option(durationInWords(bounds), (value) => millisecondsOf(value, bounds));
}

export function count(min: number, wanted = `a whole number >= ${min}`, max = Infinity): Option<number | undefined> {
  const isCount = (value: unknown): value is number =>
    Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max;
  return option(wanted, (value) => (isCount(value) ? value : undefined), { convert: 'Number()' });
}

/** Accepts only the given values. */
export function oneOf<const A extends readonly (string | boolean)[]>(...allowed: A): Option<A[number] | undefined> {
  const isAllowed = (value: unknown): value is A[number] => (allowed as readonly unknown[]).includes(value);
  // Boolean() wouldn't help: it would convert an environment variable's text 'false' to true.
  const convert = allowed.includes(true) ? { convert: "process.env.NAME === 'true'" } : {};
  return option(allowed.map(shown).join(' or '), (value) => (isAllowed(value) ? value : undefined), convert);
}

export function flag(): Option<boolean | undefined> {
  return oneOf(true, false);
}

export function text(wanted: string, pattern = /^/): Option<string | undefined> {
  return option(wanted, (value) => (typeof value === 'string' && pattern.test(value) ? value : undefined));
}

/** Nested options. */
export function group<const T extends Table>(wanted: string, table: T): Option<Settings<T> | undefined> {
  return secret(wanted, (value, { name, provider, within }, option) =>
    isObject(value)
      ? read({ name, provider, within: within === undefined ? option : `${within}.${option}` }, value, table)
      : undefined,
  );
}

/** A list with at least one item. */
export function listOf<T>(wanted: string, each: Option<T>): Option<readonly NonNullable<T>[] | undefined> {
  return foreign(wanted, (value, owner, name) => {
    if (!Array.isArray(value) || value.length === 0) return undefined;
    return value.map((item: unknown, index) => each.required().read(item, owner, `${name}[${index}]`)) as never;
  });
}

/**
 * Reads all of an owner's options. @throws LockConfigError for unknown names, missing options, options that are
 * explicitly `undefined`, and invalid values
 */
export function read<T extends Table>(owner: Owner, given: unknown, table: T): Settings<T> {
  assertObject(owner, given);
  refuseUnset(owner, given, table);
  refuseMissing(owner, given, table);
  refuseUnknown(owner, given, table);
  const settings: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(table)) settings[name] = option.read(given[name], owner, name);
  return settings as Settings<T>;
}

/** Reads the given options of a call, without adding defaults. @throws LockConfigError */
export function readGiven<T extends Table>(owner: Owner, given: object, table: T): Partial<Settings<T>> {
  const settings: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(table, name)) refuseUnknown(owner, given, table);
    settings[name] = table[name]?.read(value, owner, name);
  }
  return settings as Partial<Settings<T>>;
}

type Given = Readonly<Record<string, unknown>>;

export function assertObject({ name, example, oneOf: sources }: Owner, given: unknown): asserts given is Given {
  if (isObject(given)) return;
  const one = sources ? `, with exactly one of ${listed(sources)}` : '';
  const remedy = example === undefined ? '' : `: write ${example}${one}`;
  throw new LockConfigError(
    `${name ?? 'A lock'} takes its options as an object, but was given ${described(given)}${remedy}.`,
  );
}

function refuseUnset(owner: Owner, given: Given, table: Table): void {
  const { oneOf: sources = [] } = owner;
  const isGiven = sources.some((name) => given[name] !== undefined);
  for (const name of Object.keys(given)) {
    const { isWritten, isForeign, isRequired } = table[name]?.traits ?? {};
    if (!isWritten || (given[name] === undefined && isGiven && sources.includes(name))) continue;
    const remedy = isRequired || sources.includes(name) ? '.' : ', or omit the option to use its default.';
    refuseUnsetPart(given, name, (why) => refuse(owner, name, why + remedy));
    if (isForeign) refuseUnsetWithin(given[name], name, (path, why) => refuse(owner, path, why));
  }
}

/** Rejects missing options. The message also names unknown options, which may be misspellings of the missing ones. */
function refuseMissing(owner: Owner, given: Given, table: Table): void {
  const { name, example, oneOf: sources = [] } = owner;
  const found = sources.filter((each) => given[each] !== undefined);
  const more = () => `${unknownIn(owner, given, table)}${example === undefined ? '' : ` Write ${example}.`}`;
  if (found.length !== Math.min(sources.length, 1)) {
    const fault = found.length === 0 ? more() : ` ${listed(found)} were given: remove all but one.`;
    throw configError(owner, `${name} needs exactly one of ${listed(sources)}.${fault}`);
  }
  for (const [option, kind] of Object.entries(table)) {
    if (kind.traits.isRequired && given[option] === undefined) kind.refuse(undefined, owner, option, more());
  }
}

/** @throws LockConfigError for unknown options, because they would be silently ignored */
export function refuseUnknown(owner: Owner, given: object, table: Table): void {
  const { name, within, others } = owner;
  const known = Object.keys(table).map(quoted).join(', ');
  const remedy = `: remove it. The options are ${known}${others === undefined ? '' : `; ${others}`}`;
  const unknown = unknownIn(owner, given, table, remedy).trim();
  if (unknown === '') return;
  const place = [name ?? (within === undefined ? [] : 'Option'), within === undefined ? [] : `"${within}"`]
    .flat()
    .join(name === undefined ? ' ' : ', ');
  throw configError(owner, place === '' ? unknown : `${place}: ${unknown.replace('There', 'there')}`);
}

/** Module options that users sometimes pass to a provider by mistake. */
const MODULE_OPTIONS = ['namespace', 'instance', 'defaults', 'failFast', 'shutdownGrace'];

function unknownIn({ name: owner, provider, foreign }: Owner, given: object, table: Table, remedy = ''): string {
  const whose = owner === undefined && provider !== undefined ? ` for a lock of provider "${provider}"` : '';
  const known = Object.keys(table);
  const unknown: string[] = [];
  let sentences = '';
  for (const [name, value] of Object.entries(given)) {
    if (known.includes(name) || (value === undefined && owner === undefined)) continue;
    const meant = meantBy(name, known);
    const ofModule = meant === undefined ? nearest(name, MODULE_OPTIONS) : undefined;
    const right = meant ?? ofModule;
    const call =
      foreign?.(name) ?? (right && `"${right}"${ofModule ? ' in the options of DistributedLockModule' : ''}`);
    if (call === undefined) unknown.push(quoted(name));
    else sentences += ` There is no option "${name}"${whose}: write ${call}.`;
  }
  return unknown.length === 0 ? sentences : `${sentences} There is no option ${unknown.join(' or ')}${whose}${remedy}.`;
}

/** Describes a value without showing a string, which may be or contain a password. */
function described(value: unknown): string {
  return typeof value === 'string' ? 'a string' : shown(value);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function configError({ provider }: Owner, message: string): LockConfigError {
  return new LockConfigError(message, provider === undefined ? {} : { provider });
}

function listed(names: readonly string[]): string {
  return names
    .map(quoted)
    .join(', ')
    .replace(/, ([^,]+)$/, ' and $1');
}

function quoted(name: string): string {
  return `"${name}"`;
}
