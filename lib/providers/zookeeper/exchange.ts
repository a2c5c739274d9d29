import type { Session } from './session.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-client.js';

/** The server takes this version for any version. The versions of a node count up to it once in 2^32 writes. */
const ANY_VERSION = -1;

/** A value after an exchange. */
interface Exchanged {
  readonly value: string | null;
  /** When a write was made for it, by the clock of the leader; undefined if its answer did not contain that. */
  readonly writtenAt: number | undefined;
}

/**
 * Writes `next` into the node if its content is `expected` or `next`, and answers the content after it.
 *
 * Why this is linearizable: creations and conditional changes are writes, which a quorum puts in one order, and acknowledges when
 * a majority has them. A value read may be old, since any server answers from its own copy; but a change on condition of its version
 * then fails. Before an old value is answered, a write goes first: a read on the same connection after its answer is at
 * least as new. A write that was not answered may be executed later, or never: its outcome is unknown.
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
      // The refusal went through the quorum, too.
    } else if (isFresh) return { value: found, writtenAt };
    else writtenAt = await session.heartbeat();
  }
}

/** Answers undefined if another writer was faster. */
async function write(
  session: Session,
  path: string,
  version: number | undefined,
  data: Buffer,
): Promise<Omit<Exchanged, 'value'> | undefined> {
  if (version === ANY_VERSION) {
    throw new ZooKeeperFailure('refused', `The versions of ${path} are used up: stop all instances and delete it.`);
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
