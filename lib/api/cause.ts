import { types } from 'node:util';
import { printable } from './printable.js';

/**
 * Marks this package's errors, whose causes are already safe. It's a registered symbol, so two copies of the package in
 * one process recognize each other's errors.
 */
export const BRAND = Symbol.for('nestjs-distributed-lock:LockError');

/**
 * Properties that are copied if they are strings, numbers, or booleans. A driver error's other properties may contain
 * secrets, such as a statement, its parameters, or an address.
 */
const KEPT: ReadonlySet<string> = new Set([
  ...['code', 'errno', 'syscall', 'address', 'port', 'hostname', 'host', 'path', 'reason'],
  ...['sqlState', 'sqlMessage', 'severity', 'fatal', 'schema', 'table', 'column', 'constraint', 'routine'],
]);
const HOSTS: ReadonlySet<string> = new Set(['address', 'hostname', 'host', 'path']);
/** The properties under which Node, ioredis, and TypeORM nest other errors. */
const BELOW: ReadonlySet<string> = new Set(['cause', 'errors', 'lastNodeError', 'driverError']);
// Deep enough for any chain of wrappers.
const DEEPEST = 8;
const MOST_ERRORS = 20;
const LONGEST_TEXT = 2_000;

// Most strings don't match and can skip the patterns below.
const SUSPICIOUS = /[@?\p{Cc}\p{Zl}\p{Zp}\p{Bidi_C}]|pass|pwd|secret|token|with args|Received|[0-9a-f]{20}/iu;

/** Patterns that match secrets. They err on the side of hiding too much. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  // An address (even one set as a host name), up to the last `@`, because an unescaped password may contain any
  // character. If the `@` may be part of the query, the whole address is hidden.
  [/((?<!\bfile):\/\/|\bgetaddrinfo \w+ )[^?\n]*\?[^@\n]*@.*/, '$1***'],
  [/((?<!\bfile):\/\/|\bgetaddrinfo \w+ ).*@/, '$1***@'],
  // An address's query.
  [/\?[^\s'"?]*=.*/, '?***'],
  // "password='x'", 'password "x"', "password: x", but not "(using password: YES)".
  [/\b(pass(?:word|wd|phrase)?|pwd|secret|token)(["']?\s?[=:]\s?|\s)(["']).*?\3/gi, '$1$2$3***$3'],
  [/\b(pass(?:word|wd|phrase)?|pwd|secret|token)(\s?[=:]\s?)(?!YES\b|NO\b|["'])\S+/gi, '$1$2***'],
  // Redis quotes unknown commands, and Node quotes values it can't use.
  [/(with args beginning with:).*/, '$1 ***'],
  [/(\bReceived (?:type \w+ )?)(?:\(.*\)|'.*'|".*")/, '$1***'],
  // A holder id. Only its first 12 digits, the instance id, may be shown.
  [/([0-9a-f]{12})[0-9a-f]{8,}/gi, '$1…'],
];

// Safe copies, keyed by cause. During an outage, many callers share one cause.
const safe = new WeakMap<object, object>();

/**
 * A copy of a cause that is safe to log: same class, message, code, and stack, but no secrets. The original isn't
 * changed. Drivers put passwords and holder ids into their errors, and a holder id is enough to release its lock.
 */
export function safeCause(cause: unknown, depth = 0): unknown {
  if (typeof cause === 'string') return safeText(cause);
  if (typeof cause === 'function' || depth > DEEPEST) return undefined;
  if (typeof cause !== 'object' || cause === null || BRAND in cause) return cause;
  return safe.get(cause) ?? copyOf(cause, depth);
}

/** Removes secrets and line breaks from text written by a driver or a server. */
export function safeText(text: string): string {
  const start = text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
  if (!SUSPICIOUS.test(start)) return start;
  const line = printable(start);
  const words = line.replace(/[^\s'"]+/g, withoutCredentials);
  return SECRETS.reduce((shown, [pattern, replacement]) => shown.replace(pattern, replacement), words);
}

/** A caught value as text for a message. Not every value has a text: an object may have no prototype. */
export function errorText(error: unknown): string {
  try {
    return safeText(String(error));
  } catch {
    return 'an unprintable value';
  }
}

/** Hides the credentials in a host, in case the user configured a whole address as the host name. */
function safeHost(host: string): string {
  return safeText(host.replace(/^[^]*\?[^]*@[^]*/, '***').replace(/^[^]*@/, '***@'));
}

/** Hides the credentials in an address without `//`. Package paths, which also contain an `@`, are left unchanged. */
function withoutCredentials(word: string): string {
  const at = word.lastIndexOf('@');
  const isAddress = word.lastIndexOf(':', at) >= 0 && !/:\/\/|node_modules/.test(word);
  return at > 0 && isAddress ? `***${word.slice(at)}` : word;
}

/**
 * The JSON form of an error or any other thrown value. `JSON.stringify` alone renders other packages' errors as `{}`.
 */
export function errorInJson(error: unknown, depth = 0): unknown {
  if (!isError(error)) return errorText(error);
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
  // Registered before the nested errors are copied, because they may refer back to this one.
  safe.set(cause, copy);
  safe.set(copy, copy);
  if (isError(cause)) {
    Object.setPrototypeOf(copy, Object.getPrototypeOf(cause) as object);
    define(copy, 'name', safeText(String(read(cause, 'name'))), false);
    // Use a getter, because formatting the stack costs more than everything else here.
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

/** An error without a stack. A plain object wouldn't do: loggers and `structuredClone` treat errors specially. */
function withoutStack(message: string): Error {
  const { stackTraceLimit } = Error;
  // `Reflect.set` returns false instead of throwing if Node runs with frozen intrinsics.
  Reflect.set(Error, 'stackTraceLimit', 0);
  const error = new Error(message);
  Reflect.set(Error, 'stackTraceLimit', stackTraceLimit);
  return error;
}

/**
 * The copy's stack. Only the stack frames come from the cause; the lines above them may contain the original message.
 */
function safeStack(cause: Error, copy: object): string {
  const text = String(cause.stack);
  const start = text.indexOf(cause.message);
  const calls = (start < 0 ? text : text.slice(start + cause.message.length)).split('\n').slice(1);
  return [Error.prototype.toString.call(copy), ...calls.filter((line) => /^\s+at /.test(line))].join('\n');
}

/** Whether the value is an error, even one from another realm, as Node's own errors are in Jest. */
export function isError(value: unknown): value is Error {
  return types.isNativeError(value) || value instanceof Error;
}

/** Reads a property of an error. Returns `undefined` if its getter throws. */
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
