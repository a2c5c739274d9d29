import type { Redis } from 'ioredis';
import { LOCK_SCRIPT } from '../../lib/providers/redis/lua/lock-script.js';

export const COUNTER = 'lock:{0}';
export const LOCK = 'lock:{1}:k';
export const HERE = 'aaaaaaaaaaaa';
export const THERE = 'bbbbbbbbbbbb';

export type Operation = readonly [code: string, holder: string, ms: number];

/** Runs the script by itself: one call of `process` with these operations, all on {@link LOCK}. */
export function callScript(redis: Redis, process: string, operations: readonly Operation[]): Promise<unknown> {
  const locks = operations.map(() => LOCK);
  return redis.eval(LOCK_SCRIPT.text, 1 + operations.length, COUNTER, ...locks, process, ...operations.flat());
}
