import ms from 'ms';
import { LockConfigError } from './errors.js';
import { shown } from './printable.js';

/** A length of time: milliseconds, or text with a unit such as `'500ms'`, `'1.5s'`, `'2m'`, `'1h'`, or `'7d'`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

/**
 * A {@link Duration} in module or provider options. The type allows any string because values often come from
 * configuration; they're checked at startup.
 */
export type ConfiguredDuration = number | string;

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
// A unit is required: '5' from an .env file could mean 5 s or 5 ms. Signs and exponents are not allowed.
const TEXT = /^(\d{1,15}(?:\.\d{1,15})?)(ms|s|m|h|d)$/;

// Node's timers overflow after 2^31 - 1 ms (24.8 days) and then fire immediately.
const MAX_FINITE = 2 ** 31 - 1;

/** A duration option's bounds. */
export interface DurationBounds {
  /** Smallest allowed value, in milliseconds; default 0. */
  readonly min?: number;
  /**
   * Largest allowed finite value, in milliseconds; default 24.8 days. Lower it if a timer runs for a multiple of the
   * option's value.
   */
  readonly max?: number;
  /** Whether `Infinity` is allowed; default false. */
  readonly infinite?: boolean;
}

/**
 * Converts a configuration string to milliseconds, for a call or decorator option.
 *
 * @throws LockConfigError if the text is not a number followed by `ms`, `s`, `m`, `h`, or `d`, or exceeds 24.8 days
 * @example
 * ```ts
 * await locks.withLock('order:42', task, { wait: duration(process.env.LOCK_WAIT ?? '5s') });
 * ```
 */
export function duration(text: string): number {
  return toMilliseconds(text, 'duration');
}

/**
 * Converts the duration given for `option` to milliseconds.
 *
 * @throws LockConfigError, naming the option, if the value isn't a duration within the bounds
 */
export function toMilliseconds(value: number | string, option: string, bounds: DurationBounds = {}): number {
  const milliseconds = millisecondsOf(value, bounds);
  if (milliseconds !== undefined) return milliseconds;
  throw new LockConfigError(`Option "${option}" is ${shown(value)}, but must be ${durationInWords(bounds)}.`);
}

/** Converts an option's value to milliseconds, or returns `undefined` if it isn't a duration within the bounds. */
export function millisecondsOf(
  value: unknown,
  { min = 0, max = MAX_FINITE, infinite = false }: DurationBounds,
): number | undefined {
  const milliseconds = typeof value === 'string' ? parse(value) : value;
  if (typeof milliseconds !== 'number') return undefined;
  const isInBounds = milliseconds === Infinity ? infinite : milliseconds >= min && milliseconds <= max;
  return isInBounds ? milliseconds : undefined;
}

export function durationInWords({ min = 0, max = MAX_FINITE, infinite = false }: DurationBounds): string {
  const most = max === MAX_FINITE ? '24.8 days' : ms(max, { long: true });
  return `a duration of ${min} ms to ${most}${infinite ? ', or Infinity' : ''}: write a number of milliseconds or text with a unit such as '500ms', '5s' or '2m'`;
}

function parse(text: string): number {
  const [, number, unit] = TEXT.exec(text) ?? [];
  return number === undefined ? NaN : Number(number) * UNITS[unit as keyof typeof UNITS];
}
