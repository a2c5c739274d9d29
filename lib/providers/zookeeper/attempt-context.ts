import { LockUnavailableError } from '../../api/errors.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { Folders } from './folders.js';
import { Guards } from './guards.js';
import { PendingRemovals } from './pending-removals.js';
import type { Recipe } from './recipe.js';
import type { Session } from './session.js';
import { isFailure } from './zookeeper-client.js';

/** What all attempts of one application share. */
export class AttemptContext {
  readonly folders = new Folders();
  readonly guards = new Guards();
  readonly pendingRemovals: PendingRemovals;
  /** The current session. The backend opens it in `connect`, and replaces it when it is over. */
  session!: Session;

  constructor(
    readonly backend: BackendContext,
    readonly recipe: Recipe,
  ) {
    this.pendingRemovals = new PendingRemovals(backend.logger);
  }

  /**
   * The error for a caller whose request was refused or not answered.
   *
   * @param key undefined if it concerned all locks
   */
  unavailable(key: string | undefined, cause: unknown): LockUnavailableError {
    const { name: provider } = this.backend;
    const reason =
      isFailure(cause, 'refused') && cause instanceof Error
        ? `ZooKeeper refuses it (${cause.message})`
        : 'ZooKeeper did not answer';
    const subject = key === undefined ? 'The list of locks' : `Lock "${key}"`;
    return new LockUnavailableError(
      `${subject} of provider "${provider}" is not available: ${reason}. Check the servers and their log.`,
      { key, provider, cause },
    );
  }
}
