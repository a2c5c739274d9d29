import type { LockInfo } from '../../api/lock-info.js';
import { LOOK } from './batcher.js';
import type { Servers } from './servers.js';

/** What the server knows about a lock that is held or retained. */
export interface Inspection {
  readonly info: LockInfo;
  /** That of the latest holder. */
  readonly token: bigint;
  /** When it answered, by its clock, in ms since 1970. */
  readonly serverTime: number;
  /** The ids of the instances of the first 100 holders. */
  readonly instances: readonly string[];
}

/** Asks about a lock; `null` when it is free. Many that are asked about in one tick travel together. */
export async function look(servers: Servers, lock: string, key: string): Promise<Inspection | null> {
  for (;;) {
    const reply = await servers.batcherOf(lock).run(lock, 'I', LOOK);
    // Locks with many holders fill a call before its last look.
    if (reply !== 'a') return readInspection(key, reply);
  }
}

/** Reads state, mode, holders, waiters, ms left, token, server time, instances, and of a limited lock what is used, and the limit. */
function readInspection(key: string, reply: unknown): Inspection | null {
  if (typeof reply !== 'string' || reply === '') return null;
  const [state, mode, holders, waiters, expiresIn, token, serverTime, instances, used, limit] = reply.split(' ');
  const info: LockInfo = {
    key,
    state: state === 'retained' ? 'retained' : 'held',
    mode: mode === 'shared' || mode === 'limited' ? mode : 'exclusive',
    holders: Number(holders),
    ...(mode === 'limited' && { limit: Number(limit), used: Number(used) }),
    waiters: Number(waiters),
    expiresIn: Number(expiresIn),
    fencingToken: mode === 'limited' ? null : BigInt(token ?? 0),
  };
  return {
    info,
    token: BigInt(token ?? 0),
    serverTime: Number(serverTime) / 1_000,
    instances: instances ? instances.split(',') : [],
  };
}
