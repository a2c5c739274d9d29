import { AsyncLocalStorage } from 'node:async_hooks';
import type { GrantedLock } from './granted-lock.js';

// The locks around a piece of running code, innermost first. Immutable: a new lock opens a new context.
// Entered with run() only: enterWith() leaks into the caller on Node before 24 (nodejs/node#45848).
const storage = new AsyncLocalStorage<readonly GrantedLock[]>();

const NONE: readonly GrantedLock[] = [];

/**
 * Runs `task` under `lock`.
 *
 * The new context takes over only locks that have not ended. Work that starts itself again from a timer runs in the context of
 * its last run, so contexts that kept ended locks would grow with every run.
 */
export function runUnder<T>(lock: GrantedLock, task: () => T): T {
  for (const hold of lock.holds) hold.hasContext = true;
  return storage.run([lock, ...surroundingLocks().filter((outer) => outer !== lock)], task);
}

/** Runs `task` under no lock at all. */
export function runDetached<T>(task: () => T): T {
  return storage.run(NONE, task);
}

/** The locks around the caller that have not ended, of one `owner` or of all, innermost first. A lost lock ends when its task does. */
export function surroundingLocks(owner?: object): readonly GrantedLock[] {
  const locks = storage.getStore() ?? NONE;
  if (locks.length === 0) return NONE;
  return locks.filter((lock) => lock.isOpen && (owner === undefined || lock.owner === owner));
}
