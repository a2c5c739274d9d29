import { LockUnavailableError } from '../../api/errors.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { Folders } from './folders.js';
import { Guards } from './guards.js';
import { PendingRemovals } from './pending-removals.js';
import type { Recipe } from './recipe.js';
import type { Session } from './session.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-client.js';

/** What all attempts of one application share. */
export class AttemptContext {
  readonly folders = new Folders();
  readonly guards = new Guards();
  readonly pendingRemovals: PendingRemovals;
  /** The current session. The backend opens it in `connect`, and replaces it when it is over. */
  session!: Session;
  /** Why there is no session that is up, as far as is known. The backend notes it. */
  trouble: unknown;

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
    const subject = key === undefined ? 'The list of locks' : `Lock "${key}"`;
    return new LockUnavailableError(
      `${subject} of provider "${provider}" is not available: ${this.reasonOf(cause)}. Check the servers and their log.`,
      { key, provider, cause: this.#whyOf(cause) },
    );
  }

  /** Why a request has failed, as a part of a sentence. */
  reasonOf(cause: unknown): string {
    const why = this.#whyOf(cause);
    const words = why instanceof ZooKeeperFailure ? ` (${why.message})` : '';
    if (isFailure(why, 'refused')) return `ZooKeeper refuses it${words}`;
    return `ZooKeeper ${isFailure(why, 'misconfigured') ? 'cannot be asked' : 'did not answer'}${words}`;
  }

  /** Of a request that was not answered: why there is no session. */
  #whyOf(cause: unknown): unknown {
    return isFailure(cause, 'unanswered') ? (this.trouble ?? cause) : cause;
  }
}
