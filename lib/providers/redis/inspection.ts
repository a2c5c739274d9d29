import type { LockInfo } from '../../api/lock-info.js';

/** Reads the script's answer to `inspect`: state, mode, holders, waiters, ms left, token, and of a limited lock what is used, and the limit. */
export function readInspection(key: string, reply: unknown): LockInfo | null {
  if (typeof reply !== 'string' || reply === '') return null;
  const [state, mode, holders, waiters, expiresIn, token, used, limit] = reply.split(' ');
  return {
    key,
    state: state === 'retained' ? 'retained' : 'held',
    mode: mode === 'shared' || mode === 'limited' ? mode : 'exclusive',
    holders: Number(holders),
    ...(mode === 'limited' && { limit: Number(limit), used: Number(used) }),
    waiters: Number(waiters),
    expiresIn: Number(expiresIn),
    fencingToken: BigInt(token ?? 0),
  };
}
