import { type DurationBounds, durationInWords, millisecondsOf } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import { meantBy, nearest } from './nearest.js';
import { refuseUnsetPart, refuseUnsetWithin } from './unset.js';

/** The owner of options, as messages name it. */
export interface Owner {
  /** Left out for a lock, whose options are those of a call, a decorator or a class, which names the place itself, and for all locks. */
  readonly name?: string | undefined;
  /** A call that is right. */
  readonly example?: string | undefined;
  /** What to write for an option of other packages. */
  readonly foreign?: (name: string) => string | undefined;
  /** Options of which exactly one is needed. */
  readonly oneOf?: readonly string[];
  /** Where options belong that are not known here. */
  readonly others?: string;
  /** The lock provider, for the error. */
  readonly provider?: string | undefined;
  /** The option that these are within. */
  readonly within?: string | undefined;
}

/** All options of an owner, which the type keeps complete. */
export type OptionTable<O> = { readonly [K in keyof O]-?: Option<unknown> };
type Table = Readonly<Record<string, Option<unknown>>>;

/** The options, checked and complete: durations in ms. */
export type Settings<T> = { readonly [K in keyof T]: T[K] extends Option<infer V> ? V : never };

/** Answers undefined, or throws by {@link refuse}, for what an option must not be. */
export type Parse<T> = (value: unknown, owner: Owner, name: string) => T | undefined;

interface Traits {
  readonly default?: unknown;
  readonly isRequired?: boolean;
  /** Says which server is asked, as whom, or which locks are meant, so it may not be written and have no value. */
  readonly isWritten?: boolean;
  /** May be, or contain, a password. */
  readonly isSecret?: boolean;
  /** Has options of another library in it. */
  readonly isForeign?: boolean;
  /** How a text of the environment becomes what the option must be. */
  readonly convert?: string;
}

/** How one option is checked, and what stands for it where it is left out. */
export class Option<T> {
  constructor(
    /** What it must be, as a message says it. */
    readonly wanted: string,
    private readonly parse: Parse<T>,
    readonly traits: Traits = {},
  ) {}

  /** With a default. */
  or(value: unknown): Option<Exclude<T, undefined>> {
    return this.#with({ default: this.parse(value, {}, '') });
  }

  required(): Option<Exclude<T, undefined>> {
    return this.#with({ isRequired: true });
  }

  /** Not to be written without a value, as `url: process.env.URL` is where the variable is not set: a default would hide that. */
  written(): Option<T> {
    return this.#with({ isWritten: true });
  }

  /** @throws LockConfigError */
  read(value: unknown, owner: Owner, name: string): T {
    if (value === undefined && !this.traits.isRequired) return this.traits.default as T;
    const parsed = this.parse(value, owner, name);
    return parsed === undefined ? this.refuse(value, owner, name) : parsed;
  }

  /** @throws LockConfigError which names the place, what was given and what is wanted */
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

/** @throws LockConfigError for an option, whose place is named before `why` */
export function refuse(owner: Owner, name: string, why: string): never {
  const path = owner.within === undefined ? name : `${owner.within}.${name}`;
  throw configError(owner, `${owner.name === undefined ? 'Option ' : `${owner.name}: `}"${path}" ${why}`);
}

/** Checked by the one that it is passed on to. */
export function anything<T = unknown>(): Option<T | undefined> {
  return option('given', (value) => value as T);
}

/** Whatever `parse` takes. */
export function option<T>(wanted: string, parse: Parse<T>, traits?: Traits): Option<T | undefined> {
  return new Option<T | undefined>(wanted, parse, traits);
}

/** A text or an object that may have a password in it, as an address has. */
export function secret<T = string>(wanted: string, parse: Parse<T>): Option<T | undefined> {
  return option(wanted, parse, { isSecret: true });
}

/** Options of another library, which are passed on: only those that were written without a value are refused. */
export function foreign<T>(wanted: string, parse: Parse<T>): Option<T | undefined> {
  return option(wanted, parse, { isSecret: true, isForeign: true });
}

export function duration(bounds: DurationBounds = {}): Option<number | undefined> {
  return option(durationInWords(bounds), (value) => millisecondsOf(value, bounds));
}

/** A whole number. */
export function count(
  min: number,
  wanted = `a whole number from ${min} on`,
  max = Infinity,
): Option<number | undefined> {
  const isCount = (value: unknown): value is number =>
    Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max;
  return option(wanted, (value) => (isCount(value) ? value : undefined), { convert: 'Number()' });
}

/** One of a few words, or true or false. */
export function oneOf<const A extends readonly (string | boolean)[]>(...allowed: A): Option<A[number] | undefined> {
  const isAllowed = (value: unknown): value is A[number] => (allowed as readonly unknown[]).includes(value);
  // The text 'false' of an environment variable would count as true.
  const convert = allowed.includes(true) ? { convert: "process.env.NAME === 'true'" } : {};
  return option(allowed.map(shown).join(' or '), (value) => (isAllowed(value) ? value : undefined), convert);
}

export function flag(): Option<boolean | undefined> {
  return oneOf(true, false);
}

export function text(wanted: string, pattern = /^/): Option<string | undefined> {
  return option(wanted, (value) => (typeof value === 'string' && pattern.test(value) ? value : undefined));
}

/** Options within an option. */
export function group<const T extends Table>(wanted: string, table: T): Option<Settings<T> | undefined> {
  return secret(wanted, (value, { name, provider, within }, option) =>
    isObject(value)
      ? read({ name, provider, within: within === undefined ? option : `${within}.${option}` }, value, table)
      : undefined,
  );
}

/** A list of at least one. */
export function listOf<T>(wanted: string, each: Option<T>): Option<readonly NonNullable<T>[] | undefined> {
  return foreign(wanted, (value, owner, name) => {
    if (!Array.isArray(value) || value.length === 0) return undefined;
    return value.map((item: unknown, index) => each.required().read(item, owner, `${name}[${index}]`)) as never;
  });
}

/**
 * Reads all options of an owner: names that do not exist, options that are missing, those that were written without a value, and wrong values
 * are refused.
 *
 * @throws LockConfigError
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

/** Reads the options that were given, and adds no default. For options of a call. @throws LockConfigError */
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

function assertObject({ name, example, oneOf: sources }: Owner, given: unknown): asserts given is Given {
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
    const remedy = isRequired || sources.includes(name) ? '.' : ', or leave the option out if you want its default.';
    refuseUnsetPart(given, name, (why) => refuse(owner, name, why + remedy));
    if (isForeign) refuseUnsetWithin(given[name], name, (path, why) => refuse(owner, path, why));
  }
}

/** What is missing, and what may have been written for it. */
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

/** @throws LockConfigError for options that do not exist: they would be ignored silently, and so would what they were meant for */
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

/** Options of the module that are given to a provider instead. */
const OF_MODULE = ['namespace', 'instance', 'defaults', 'failFast', 'shutdownGrace'];

function unknownIn({ name: owner, provider, foreign }: Owner, given: object, table: Table, remedy = ''): string {
  const whose = owner === undefined && provider !== undefined ? ` for a lock of provider "${provider}"` : '';
  const known = Object.keys(table);
  const strange: string[] = [];
  let sentences = '';
  for (const [name, value] of Object.entries(given)) {
    if (known.includes(name) || (value === undefined && owner === undefined)) continue;
    const meant = meantBy(name, known);
    const ofModule = meant === undefined ? nearest(name, OF_MODULE) : undefined;
    const right = meant ?? ofModule;
    const call =
      foreign?.(name) ?? (right && `"${right}"${ofModule ? ' in the options of DistributedLockModule' : ''}`);
    if (call === undefined) strange.push(quoted(name));
    else sentences += ` There is no option "${name}"${whose}: write ${call}.`;
  }
  return strange.length === 0 ? sentences : `${sentences} There is no option ${strange.join(' or ')}${whose}${remedy}.`;
}

/** Without a text, which may be or have a password. */
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
