import { AsyncLocalStorage } from 'node:async_hooks';
import type { GrantedLock } from './granted-lock.js';

/** The locks around a piece of running code, innermost first. Immutable: a new lock opens a new context around the old. */
interface OwnerContext {
  readonly lock: GrantedLock;
  readonly outer: OwnerContext | undefined;
}

// Entered with run() only: enterWith() leaks into the caller on Node before 24 (nodejs/node#45848).
const storage = new AsyncLocalStorage<OwnerContext | undefined>();

/** Runs `task` under `lock`. */
export function runUnder<T>(lock: GrantedLock, task: () => T): T {
  for (const hold of lock.holds) hold.hasContext = true;
  return storage.run({ lock, outer: storage.getStore() }, task);
}

/** Runs `task` under no lock at all. */
export function runDetached<T>(task: () => T): T {
  return storage.run(undefined, task);
}

/** The locks around the caller, innermost first. */
export function* surroundingLocks(): Generator<GrantedLock> {
  for (let context = storage.getStore(); context; context = context.outer) yield context.lock;
}

/** Whether the caller runs under any lock: cheaper than asking which. */
export function isUnderLock(): boolean {
  return storage.getStore() !== undefined;
}
