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

/** The context shared by all requests of one application. */
export class RequestContext {
  readonly folders = new Folders();
  readonly guards = new Guards();
  readonly pendingRemovals: PendingRemovals;
  readonly holders: SeenHolders;
  /** The current session. The backend opens it in `connect` and replaces it when it ends. */
  session!: Session;
  /** Why no session is up, if known. Set by the backend. */
  trouble: unknown;
  /** When the servers started rejecting our credentials. Set by the backend. */
  refusedSince: number | undefined;

  constructor(
    readonly backend: BackendContext,
    readonly recipe: Recipe,
  ) {
    this.pendingRemovals = new PendingRemovals(backend.logger);
    this.holders = new SeenHolders(backend.instance, async (id, path = '') => {
      const node = await this.session.client.read(path);
      // Throw so that another node of the same instance is tried later.
      if (!node) throw new Error('The holder has left.');
      return instanceNameIn(node.data, id) ?? id;
    });
  }

  /**
   * The error for a request that was refused or got no response.
   *
   * @param key undefined if all locks are affected
   */
  unavailable(key: string | undefined, cause: unknown): LockError {
    return this.unavailableSubject(key === undefined ? 'The list of locks' : `Lock "${key}"`, cause, key);
  }

  /** Like {@link unavailable}. @param subject such as `Record "nightly"` */
  unavailableSubject(subject: string, cause: unknown, key?: string): LockError {
    const { name: provider } = this.backend;
    const message = `${subject} of provider "${provider}" is not available: ${this.reasonOf(cause)}. Check the servers and their logs.`;
    return this.errorOf(message, key, this.#whyOf(cause));
  }

  /** `LockConfigError` for a lasting refusal, otherwise `LockUnavailableError`. */
  errorOf(message: string, key: string | undefined, cause: unknown): LockError {
    const details = { key, provider: this.backend.name, cause };
    // A single server may be misconfigured temporarily, for example during a rolling restart, so only a lasting refusal counts.
    const isLasting =
      isFailure(cause, 'refused') &&
      this.refusedSince !== undefined &&
      this.backend.clock.now() - this.refusedSince >= REFUSAL_RETRIED_FOR;
    return isLasting || (cause instanceof ZooKeeperFailure && cause.isDefinite)
      ? new LockConfigError(message, { ...details, refused: true })
      : new LockUnavailableError(message, details);
  }

  /** Why a request failed, phrased as a clause. */
  reasonOf(cause: unknown): string {
    const why = this.#whyOf(cause);
    const words = why instanceof ZooKeeperFailure ? ` (${why.message})` : '';
    if (isFailure(why, 'refused')) return `ZooKeeper refused the request${words}`;
    return `ZooKeeper ${isFailure(why, 'misconfigured') ? 'cannot be reached' : 'did not respond'}${words}`;
  }

  /** If a request got no response, the reason why no session is up says more. */
  #whyOf(cause: unknown): unknown {
    return isFailure(cause, 'unanswered') ? (this.trouble ?? cause) : cause;
  }
}
