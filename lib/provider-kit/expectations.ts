import assert from 'node:assert/strict';
import type { LockError } from '../api/errors.js';

/** The error that `work` rejects with. Fails if it does not reject. */
export async function rejection(work: PromiseLike<unknown>, what: string): Promise<unknown> {
  let value: unknown;
  try {
    value = await work;
  } catch (error) {
    return error;
  }
  assert.fail(`${what}: expected a rejection, got ${value === null ? 'null' : typeof value}`);
}

/** Fails unless `work` rejects with this kind of lock error. */
export async function rejectsWith<E extends LockError>(
  kind: new (...args: never[]) => E,
  work: PromiseLike<unknown>,
  what: string,
): Promise<E> {
  const error = await rejection(work, what);
  assert.ok(error instanceof kind, `${what}: expected ${kind.name}, got ${String(error)}`);
  return error;
}

/** Fails unless `value` lies between the bounds, inclusive. */
export function assertBetween(value: number, least: number, most: number, what: string): void {
  const message = `${what}: ${value.toFixed(1)} ms, expected ${least.toFixed(1)} to ${most.toFixed(1)} ms`;
  assert.ok(value >= least && value <= most, message);
}
