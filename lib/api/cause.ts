import { types } from 'node:util';
import { printable } from './printable.js';

/** Marks the errors of this package: their causes are safe. Registered, so that two copies of it in one process recognize each other's errors. */
export const BRAND = Symbol.for('nestjs-distributed-lock:LockError');

/** The properties that a cause keeps, where they are text, a number or a boolean. Drivers note more: the statement, its parameters, the address as it was given. */
const KEPT: ReadonlySet<string> = new Set([
  ...['code', 'errno', 'syscall', 'address', 'port', 'hostname', 'host', 'path', 'reason'],
  ...['sqlState', 'sqlMessage', 'severity', 'fatal', 'schema', 'table', 'column', 'constraint', 'routine'],
]);
const HOSTS: ReadonlySet<string> = new Set(['address', 'hostname', 'host', 'path']);
/** The errors below an error: of Node, ioredis and TypeORM. */
const BELOW: ReadonlySet<string> = new Set(['cause', 'errors', 'lastNodeError', 'driverError']);
// Enough for any chain of wrappers.
const DEEPEST = 8;
const MOST_ERRORS = 20;
const LONGEST_TEXT = 2_000;

// Most texts have none of these, and pass with one look.
const SUSPICIOUS = /[@?\p{Cc}\p{Zl}\p{Zp}\p{Bidi_C}]|pass|pwd|secret|token|with args|Received|[0-9a-f]{20}/iu;

/** Each pattern hides more than it must rather than less. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  // An address, also as the name of a host, up to the last `@`: a password that is not escaped may contain anything. All of it, if that may
  // be in its query.
  [/((?<!\bfile):\/\/|\bgetaddrinfo \w+ )[^?\n]*\?[^@\n]*@.*/, '$1***'],
  [/((?<!\bfile):\/\/|\bgetaddrinfo \w+ ).*@/, '$1***@'],
  // The query of an address.
  [/\?[^\s'"?]*=.*/, '?***'],
  // "password='x'", 'password "x"', "password: x", and not "(using password: YES)".
  [/\b(pass(?:word|wd|phrase)?|pwd|secret|token)(["']?\s?[=:]\s?|\s)(["']).*?\3/gi, '$1$2$3***$3'],
  [/\b(pass(?:word|wd|phrase)?|pwd|secret|token)(\s?[=:]\s?)(?!YES\b|NO\b|["'])\S+/gi, '$1$2***'],
  // Redis repeats a command that it does not know, and Node a value that it cannot use.
  [/(with args beginning with:).*/, '$1 ***'],
  [/(\bReceived (?:type \w+ )?)(?:\(.*\)|'.*'|".*")/, '$1***'],
  // The id of a holder, whose first digits are those of its instance.
  [/([0-9a-f]{12})[0-9a-f]{8,}/gi, '$1…'],
];

// The causes that were made safe, and their copies: an outage gives one cause to many callers.
const safe = new WeakMap<object, object>();

/**
 * The part of a cause that everybody may see: a copy of the same class, with its message, code and stack. The error itself is not changed. Drivers
 * note passwords and ids of holders in their errors, and a holder's id is enough to release its lock.
 */
export function safeCause(cause: unknown, depth = 0): unknown {
  if (typeof cause === 'string') return safeText(cause);
  if (typeof cause === 'function' || depth > DEEPEST) return undefined;
  if (typeof cause !== 'object' || cause === null || BRAND in cause) return cause;
  return safe.get(cause) ?? copyOf(cause, depth);
}

/** The part that everybody may see of a text that a driver or a server has written, on one line. */
export function safeText(text: string): string {
  const start = text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
  if (!SUSPICIOUS.test(start)) return start;
  const line = printable(start);
  const words = line.replace(/[^\s'"]+/g, withoutCredentials);
  return SECRETS.reduce((shown, [pattern, replacement]) => shown.replace(pattern, replacement), words);
}

/** A whole address may have been given as the name of a host. */
function safeHost(host: string): string {
  return safeText(host.replace(/^[^]*\?[^]*@[^]*/, '***').replace(/^[^]*@/, '***@'));
}

/** Of an address without `//`, such as the name of a host into which a whole address was written. Paths of packages have an `@` as well. */
function withoutCredentials(word: string): string {
  const at = word.lastIndexOf('@');
  const isAddress = word.lastIndexOf(':', at) >= 0 && !/:\/\/|node_modules/.test(word);
  return at > 0 && isAddress ? `***${word.slice(at)}` : word;
}

/** The JSON form of an error, or of what was thrown instead: JSON itself shows nothing of an error that is not of this package. */
export function errorInJson(error: unknown, depth = 0): unknown {
  if (!isError(error)) return String(error);
  if (BRAND in error) return error;
  const { name, message, cause } = error;
  const code = read(error, 'code');
  const below = cause !== undefined && depth < DEEPEST && { cause: errorInJson(cause, depth + 1) };
  return { name, message, ...(typeof code === 'string' && { code }), ...below };
}

function copyOf(cause: object, depth: number): object {
  const text = read(cause, 'message');
  const message = typeof text === 'string' ? safeText(text) : '';
  const copy = isError(cause) ? withoutStack(message) : { message };
  // Before what is below, which may be circular.
  safe.set(cause, copy);
  safe.set(copy, copy);
  if (isError(cause)) {
    Object.setPrototypeOf(copy, Object.getPrototypeOf(cause) as object);
    define(copy, 'name', safeText(String(read(cause, 'name'))), false);
    // The stack becomes text when it is read, which costs more than all else here.
    Object.defineProperty(copy, 'stack', { get: () => safeStack(cause, copy), configurable: true });
  }
  const below = (error: unknown) => safeCause(error, depth + 1);
  for (const name of Object.getOwnPropertyNames(cause)) {
    if (!KEPT.has(name) && !BELOW.has(name)) continue;
    const value = read(cause, name);
    if (BELOW.has(name)) {
      define(copy, name, Array.isArray(value) ? value.slice(0, MOST_ERRORS).map(below) : below(value), false);
    } else if (typeof value === 'string') define(copy, name, HOSTS.has(name) ? safeHost(value) : safeText(value), true);
    else if (typeof value === 'number' || typeof value === 'boolean') define(copy, name, value, true);
  }
  return copy;
}

/** Not a plain object, because loggers and `structuredClone` treat errors apart. */
function withoutStack(message: string): Error {
  const { stackTraceLimit } = Error;
  // Answers false, and throws nothing, where Node runs with frozen intrinsics.
  Reflect.set(Error, 'stackTraceLimit', 0);
  const error = new Error(message);
  Reflect.set(Error, 'stackTraceLimit', stackTraceLimit);
  return error;
}

/** The calls alone: what precedes them may have a message that was changed since. */
function safeStack(cause: Error, copy: object): string {
  const text = String(cause.stack);
  const start = text.indexOf(cause.message);
  const calls = (start < 0 ? text : text.slice(start + cause.message.length)).split('\n').slice(1);
  return [Error.prototype.toString.call(copy), ...calls.filter((line) => /^\s+at /.test(line))].join('\n');
}

/** Also one of another realm, as Node's own are in Jest. */
export function isError(value: unknown): value is Error {
  return types.isNativeError(value) || value instanceof Error;
}

/** Getters of an error may throw. */
function read(error: object, name: string): unknown {
  try {
    return (error as Readonly<Record<string, unknown>>)[name];
  } catch {
    return undefined;
  }
}

function define(copy: object, name: string, value: unknown, enumerable: boolean): void {
  Object.defineProperty(copy, name, { value, enumerable, configurable: true, writable: true });
}
