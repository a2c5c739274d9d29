import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import { meantBy, nearest } from './nearest.js';

/** The names of all options, which the type keeps complete. */
export type OptionNames<O> = Readonly<Record<keyof O, true>>;

/** Options of the module that are given to a provider instead. */
const OF_MODULE = ['namespace', 'instance', 'defaults', 'failFast', 'shutdownGrace'];

/**
 * Options that come from the environment as a rule, and whose absence has a meaning: they say which server is asked, as whom, and which locks
 * are meant there. With another one, a process would lock elsewhere than the others and exclude none of them.
 */
const FROM_ENVIRONMENT: ReadonlySet<string> = new Set([
  ...['url', 'uri', 'connectionString', 'connectString', 'server', 'host', 'port', 'path', 'socketPath'],
  ...['client', 'cluster', 'options', 'postgres', 'mysql', 'dataSource', 'sentinels', 'sentinelRootNodes', 'name'],
  ...['user', 'username', 'password', 'credentials', 'sentinelUsername', 'sentinelPassword'],
  ...['db', 'database', 'table', 'namespace', 'provider', 'providers', 'default', 'casStore', 'store'],
]);

/** Those that nothing stands for where they are left out. */
const OF_NO_DEFAULT: ReadonlySet<string> = new Set([
  ...['url', 'uri', 'connectionString', 'connectString', 'server', 'client', 'cluster', 'options'],
  ...['postgres', 'mysql', 'dataSource', 'sentinels', 'sentinelRootNodes', 'providers', 'store'],
]);

/** Options that have such options in them. */
const CONTAINERS: ReadonlySet<string> = new Set([
  ...[
    'options',
    'socket',
    'defaults',
    'redisOptions',
    'nodeClientOptions',
    'sentinelClientOptions',
    'postgres',
    'mysql',
    'auth',
  ],
  ...['cluster', 'rootNodes', 'sentinels', 'sentinelRootNodes'],
]);

/** The text that a template or `String()` makes of a variable that is not set, as a part of an address. */
const UNSET_PART = /(?:^|[/:@,])(undefined|null|NaN)(?:$|[/:@,?])/;

/**
 * Refuses options that are no object, and each option that was written and has no value, as `url: process.env.REDIS_URL` has where the variable is
 * not set: it is not an option that was left out, and a default would hide the mistake.
 *
 * @param example a call that is right
 * @param oneOf options of which one is enough, so that the others may be undefined
 * @throws LockConfigError
 */
export function checkGiven(owner: string, options: unknown, example: string, oneOf: readonly string[] = []): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new LockConfigError(
      `${owner} takes its options as an object, and was given ${kindOf(options)}: write ${example}.`,
    );
  }
  const isGiven = oneOf.some((name) => (options as Readonly<Record<string, unknown>>)[name] !== undefined);
  refuseUnset(owner, options, '', isGiven ? oneOf : []);
}

/** For the first argument of the constructor of a class that Nest was told to make, which passes none. @throws LockConfigError */
export function madeByNest(name: string): never {
  throw new LockConfigError(
    `${name} is in the "providers" of a module: remove it there. DistributedLockModule provides it, in all modules of the application.`,
  );
}

/** @throws LockConfigError for a task that is no function, such as options that were given instead of it */
export function assertTask(caller: string, task: unknown): void {
  if (typeof task === 'function') return;
  throw new LockConfigError(
    `${caller} has no task: its second argument is ${shown(task)}, and must be a function. Write ${caller.replace('()', "('order:42', task, options)")}.`,
  );
}

/** @throws LockConfigError for what is no signal, such as its AbortController */
export function assertSignal(signal: unknown): void {
  if (signal === undefined) return;
  // By its methods, because there are other implementations than that of Node.
  const { throwIfAborted, addEventListener } = Object(signal) as Partial<Record<string, unknown>>;
  if (typeof throwIfAborted === 'function' && typeof addEventListener === 'function') return;
  throw new LockConfigError(
    `Option "signal" is ${shown(signal)}, but must be an AbortSignal${signal instanceof AbortController ? ': pass its "signal"' : ', such as AbortSignal.timeout(1_000)'}.`,
  );
}

/**
 * Names the options that do not exist, and those that somebody may have meant. Empty if there are none.
 *
 * @param remedy for those that resemble no other
 */
export function unknownIn(options: object, known: object, remedy = ''): string {
  const names = Object.keys(known);
  const strange: string[] = [];
  const sentences: string[] = [];
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue;
    const meant = meantBy(name, names);
    const ofModule = meant === undefined ? nearest(name, OF_MODULE) : undefined;
    if (meant !== undefined) sentences.push(`There is no option "${name}": write "${meant}".`);
    else if (ofModule !== undefined) {
      sentences.push(`There is no option "${name}": write "${ofModule}" in the options of DistributedLockModule.`);
    } else strange.push(`"${name}"`);
  }
  if (strange.length > 0) sentences.push(`There is no option ${strange.join(' or ')}${remedy}.`);
  return sentences.map((sentence) => ` ${sentence}`).join('');
}

/**
 * Refuses options that do not exist: they would be ignored silently, and so would what they were meant for.
 *
 * @param others where options belong that are not known here
 * @throws LockConfigError
 */
export function refuseUnknown(owner: string, options: object, known: object, others?: string): void {
  const names = Object.keys(known).map((name) => `"${name}"`);
  const unknown = unknownIn(
    options,
    known,
    `: remove it. The options are ${names.join(', ')}${others === undefined ? '' : `; ${others}`}`,
  );
  if (unknown !== '') throw new LockConfigError(`${owner}:${unknown.replace('There', 'there')}`);
}

function refuseUnset(owner: string, options: object, path: string, optional: readonly string[]): void {
  for (const [name, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(options))) {
    // A getter gives what is right at each connection, and may be expensive.
    if (!('value' in descriptor)) continue;
    const value: unknown = descriptor.value;
    const place = Array.isArray(options) ? `${path}[${name}]` : `${path}${path && '.'}${name}`;
    if (FROM_ENVIRONMENT.has(name) || Array.isArray(options)) {
      const part = partUnset(value);
      if (part !== undefined && !(value === undefined && optional.includes(name))) {
        throw new LockConfigError(
          `${owner}: "${place}" ${part}: is the variable set? Set it${OF_NO_DEFAULT.has(name) ? '' : ', or leave the option out if you want its default'}.`,
        );
      }
    }
    // A client may be a proxy that answers no question: only what may have options in it is looked at.
    if ((CONTAINERS.has(name) || Array.isArray(options)) && isContainer(value)) refuseUnset(owner, value, place, []);
  }
}

/** The fault of a value that comes from a variable; never the value itself, which may have a password. */
function partUnset(value: unknown): string | undefined {
  if (value === undefined || Number.isNaN(value)) return `is ${String(value)}`;
  const [, part] = (typeof value === 'string' && UNSET_PART.exec(value)) || [];
  if (part === undefined) return undefined;
  return part === value ? `is the text '${part}'` : `has the text '${part}' in it`;
}

/** Not an object of a class, such as a complete configuration that a driver has made: that has all options, most of them undefined. */
function isContainer(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return Array.isArray(value) || prototype === Object.prototype || prototype === null;
}

function kindOf(options: unknown): string {
  if (options === undefined || options === null) return String(options);
  return Array.isArray(options) ? 'a list' : typeof options === 'string' ? 'a text' : `a ${typeof options}`;
}
