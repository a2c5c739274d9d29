import type { LockInfo } from '../../api/lock-info.js';

/** Reads the script's answer to `inspect`: state, mode, holders, waiters, ms left, token. */
export function readInspection(key: string, reply: unknown): LockInfo | null {
  if (typeof reply !== 'string' || reply === '') return null;
  const [state, mode, holders, waiters, expiresIn, token] = reply.split(' ');
  return {
    key,
    state: state === 'retained' ? 'retained' : 'held',
    mode: mode === 'shared' ? 'shared' : 'exclusive',
    holders: Number(holders),
    waiters: Number(waiters),
    expiresIn: Number(expiresIn),
    fencingToken: BigInt(token ?? 0),
  };
}
