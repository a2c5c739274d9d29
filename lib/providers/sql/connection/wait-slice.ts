import type { Dialect } from './dialect.js';

// After how much waiting for a lock a slice of the wait has half of its greatest length, in ms.
const HALF_LENGTH_AFTER = 5_000;

/**
 * For how many ms a statement waits for a lock whose caller has waited for `waited` ms.
 *
 * A wait at the server is made of slices. In a long statement a session of Postgres has a snapshot, so that VACUUM removes nothing and CREATE
 * INDEX CONCURRENTLY does not end; and while a statement waits, no server notices that its client is gone. Each slice begins at the end of
 * the server's queue. So they grow: a caller that has waited for longer is less often at the end, and more often at the head. With equal slices,
 * the last caller that came is among the next ones that get the lock. Measured, eight processes that hold it for 0.4 s: the longest wait was 8
 * to 9 s with equal slices, 4.5 to 4.9 s with these, and would be 2.8 s in turn.
 */
export function sliceLength({ unit, longest }: Dialect['slice'], waited: number): number {
  const share = waited / (waited + HALF_LENGTH_AFTER);
  return unit * Math.max(1, Math.ceil((share * longest) / unit));
}
