import { LockConfigError, type LockError, LockUnavailableError } from '../../api/errors.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { REFUSAL_RETRIED_FOR } from '../../core/toolkit/retryable.js';
import { SeenHolders } from '../shared/seen-holders.js';
import { Folders } from './folders.js';
import { Guards } from './guards.js';
import { instanceNameIn } from './node-content.js';
import { PendingRemovals } from './pending-removals.js';
import type { Recipe } from './recipe.js';
import type { Session } from './session.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-client.js';

/** The parts that all requests of one application share. */
export class RequestContext {
  readonly folders = new Folders();
  readonly guards = new Guards();
  readonly pendingRemovals: PendingRemovals;
  readonly holders: SeenHolders;
  /** The current session. The backend opens it in `connect`, and replaces it when it is over. */
  session!: Session;
  /** Why there is no session that is up, as far as is known. The backend notes it. */
  trouble: unknown;
  /** Since when the servers close each session because of our credentials, on the monotonic clock. The backend notes it. */
  refusedSince: number | undefined;

  constructor(
    readonly backend: BackendContext,
    readonly recipe: Recipe,
  ) {
    this.pendingRemovals = new PendingRemovals(backend.logger);
    this.holders = new SeenHolders(backend.instance, async (id, path = '') => {
      const node = await this.session.client.read(path);
      // Another node of the instance may name it later.
      if (!node) throw new Error('The holder has left.');
      return instanceNameIn(node.data, id) ?? id;
    });
  }

  /**
   * The error for a caller whose request was refused or not answered.
   *
   * @param key undefined if it concerned all locks
   */
  unavailable(key: string | undefined, cause: unknown): LockError {
    return this.unavailableSubject(key === undefined ? 'The list of locks' : `Lock "${key}"`, cause, key);
  }

  /** As {@link unavailable}. @param subject such as `Record "nightly"` */
  unavailableSubject(subject: string, cause: unknown, key?: string): LockError {
    const { name: provider } = this.backend;
    const message = `${subject} of provider "${provider}" is not available: ${this.reasonOf(cause)}. Check the servers and their log.`;
    return this.errorOf(message, key, this.#whyOf(cause));
  }

  /** The error for a failure: a refusal, or an outage. */
  errorOf(message: string, key: string | undefined, cause: unknown): LockError {
    const details = { key, provider: this.backend.name, cause };
    // One of several servers may be misconfigured for a while, as during a restart of all of them.
    const isLasting =
      isFailure(cause, 'refused') &&
      this.refusedSince !== undefined &&
      this.backend.clock.now() - this.refusedSince >= REFUSAL_RETRIED_FOR;
    return isLasting || (cause instanceof ZooKeeperFailure && cause.isDefinite)
      ? new LockConfigError(message, { ...details, refused: true })
      : new LockUnavailableError(message, details);
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
