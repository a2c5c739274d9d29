import type { Records } from '../../api/lock-provider.js';
import { LockUnavailableError } from '../../api/errors.js';
import type { Session } from './session.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-client.js';

/** The version that the server takes for any. Counted up to once in 2^32 writes. */
const ANY_VERSION = -1;

/** Of whom the records are. */
export interface RecordKeeper {
  readonly name: string;
  /** The session of now. */
  readonly session: Session;
  /** Where the record of this name is. */
  pathOf(name: string): string;
}

/**
 * Records as persistent nodes, each changed on condition of its version.
 *
 * Why this is linearizable: creations and conditional changes are writes, which a quorum puts in one order, and acknowledges when
 * most have them. A value read may be old, since any server answers from what it has; but a change on condition of its version
 * then fails. Before an old value is told to anybody, a write goes first: what is read on the same connection after its answer is at
 * least as new. What was not answered may be carried out later, or never: its outcome is unknown.
 */
export class ZooKeeperRecords implements Records {
  constructor(private readonly keeper: () => RecordKeeper) {}

  async compareAndSet(name: string, expected: string | null, next: string): Promise<string | null> {
    const keeper = this.keeper();
    try {
      return await exchange(keeper.session, keeper.pathOf(name), expected, next);
    } catch (cause) {
      throw new LockUnavailableError(
        `Record "${name}" of provider "${keeper.name}": ZooKeeper did not answer or refused; check the servers and their log.`,
        { provider: keeper.name, cause },
      );
    }
  }
}

async function exchange(session: Session, path: string, expected: string | null, next: string): Promise<string | null> {
  for (let isFresh = false; ;) {
    const node = await session.read(path);
    const found = node && node.data.toString();
    if (found === expected || found === next) {
      if (await write(session, path, node?.version, Buffer.from(next))) return next;
      // The refusal went through the quorum, too.
      isFresh = true;
    } else if (isFresh) return found;
    else {
      await session.heartbeat();
      isFresh = true;
    }
  }
}

/** Answers whether it was written; not if somebody else was faster. */
async function write(session: Session, path: string, version: number | undefined, data: Buffer): Promise<boolean> {
  if (version === ANY_VERSION) {
    throw new ZooKeeperFailure('refused', `The versions of ${path} are used up: stop all instances and delete it.`);
  }
  try {
    if (version === undefined) await create(session, path, data);
    else await session.replace(path, data, version);
    return true;
  } catch (error) {
    if (isFailure(error, 'changed', 'exists', 'no-node')) return false;
    throw error;
  }
}

async function create(session: Session, path: string, data: Buffer): Promise<void> {
  try {
    await session.create(path, 'persistent', data);
  } catch (error) {
    if (!isFailure(error, 'no-node')) throw error;
    await session.makePath(path.slice(0, path.lastIndexOf('/')));
    await session.create(path, 'persistent', data);
  }
}
