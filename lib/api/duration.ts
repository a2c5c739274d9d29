import ms from 'ms';
import { LockConfigError } from './errors.js';

/** A length of time: milliseconds, or text with a unit such as `'500ms'`, `'5s'`, `'2m'`, `'1h'` (package `ms`). */
export type Duration = number | string;

// Node's timers overflow beyond 2^31 - 1 ms (24.8 days) and then fire at once.
const MAX_FINITE = 2 ** 31 - 1;

/** The bounds of a duration option. */
interface DurationBounds {
  /** Smallest allowed value in milliseconds; default 0. */
  readonly min?: number;
  /** Largest allowed finite value in milliseconds; default 24.8 days. Smaller where a timer runs for a multiple of it. */
  readonly max?: number;
  /** Whether `Infinity` is allowed; default false. */
  readonly infinite?: boolean;
}

/**
 * Reads the duration given for `option` in milliseconds.
 *
 * @throws LockConfigError naming the option when the value is not a duration, is NaN, negative, too small or too long
 */
export function toMilliseconds(
  value: Duration,
  option: string,
  { min = 0, max = MAX_FINITE, infinite = false }: DurationBounds = {},
): number {
  const milliseconds = typeof value === 'string' ? parse(value) : value;
  if (milliseconds === Infinity && infinite) return Infinity;
  if (typeof milliseconds === 'number' && milliseconds >= min && milliseconds <= max) return milliseconds;
  throw new LockConfigError(
    `Option "${option}" is ${describe(value)}, but must be a duration of ${min} ms to ${max === MAX_FINITE ? '24.8 days' : ms(max, { long: true })}` +
      `${infinite ? ', or Infinity' : ''}: write a number of milliseconds or text with a unit such as '500ms', '5s' or '2m'.`,
  );
}

function parse(text: string): number {
  // ms() throws on empty text and on text of more than 100 characters, and answers undefined or NaN on unknown units.
  if (text.length === 0 || text.length > 100) return NaN;
  return (ms as (text: string) => number | undefined)(text) ?? NaN;
}

function describe(value: unknown): string {
  return typeof value === 'string'
    ? `'${value.slice(0, 40)}'`
    : typeof value === 'number'
      ? String(value)
      : typeof value;
}
