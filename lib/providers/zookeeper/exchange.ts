import type { Session } from './session.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-client.js';

/** The server interprets this as "any version". A node's version reaches this value once every 2^32 writes. */
const ANY_VERSION = -1;

interface Exchanged {
  readonly value: string | null;
  /** When the value was written, by the leader's clock; undefined if no write in this call returned a time. */
  readonly writtenAt: number | undefined;
}

/**
 * Sets the node to `next` if it contains `expected` or already contains `next`. Returns the resulting content.
 *
 * This is linearizable. Creates and conditional writes are ordered by the quorum and acknowledged by a majority. A read
 * may be stale, because each server responds from its own copy, but then the conditional write fails. Before a possibly
 * stale value is returned, a write is sent, because a later read on the same connection is at least as recent. If a
 * write gets no response, its outcome is unknown.
 */
export async function exchange(
  session: Session,
  path: string,
  expected: string | null,
  next: string,
): Promise<Exchanged> {
  let writtenAt: number | undefined;
  for (let isFresh = false; ; isFresh = true) {
    const node = await session.client.read(path);
    const found = node && node.data.toString();
    if (found === expected || found === next) {
      const written = await write(session, path, node?.version, Buffer.from(next));
      if (written) return { value: next, ...written };
      // A failed condition is also decided by the quorum, so the next read is fresh.
    } else if (isFresh) return { value: found, writtenAt };
    else writtenAt = await session.heartbeat();
  }
}

/** Returns undefined if another writer was faster. */
async function write(
  session: Session,
  path: string,
  version: number | undefined,
  data: Buffer,
): Promise<Omit<Exchanged, 'value'> | undefined> {
  if (version === ANY_VERSION) {
    throw new ZooKeeperFailure(
      'refused',
      `The version counter of ${path} is full. Stop all instances, then delete the node.`,
    );
  }
  try {
    if (version !== undefined) return { writtenAt: await session.client.write(path, data, version) };
    await create(session, path, data);
    return { writtenAt: undefined };
  } catch (error) {
    if (isFailure(error, 'changed', 'exists', 'no-node')) return undefined;
    throw error;
  }
}

async function create(session: Session, path: string, data: Buffer): Promise<void> {
  try {
    await session.client.create(path, 'persistent', data);
  } catch (error) {
    if (!isFailure(error, 'no-node')) throw error;
    await session.makePath(path.slice(0, path.lastIndexOf('/')));
    await session.client.create(path, 'persistent', data);
  }
}
