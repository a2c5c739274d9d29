import type { LockKey } from './lock-key.js';

/** Computes a call's key from its arguments. */
export type KeyFunction<A extends readonly unknown[]> = (...args: A) => LockKey;
