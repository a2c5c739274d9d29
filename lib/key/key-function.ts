import type { LockKey } from './lock-key.js';

/** Computes the key of a call from the call's arguments. */
export type KeyFunction<A extends readonly unknown[]> = (...args: A) => LockKey;
