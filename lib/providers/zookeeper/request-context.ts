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
import { isFailure, ZooKeeperFailure } from './zookeeper-failure.js';

/** How many children a list reads ahead of its consumer. */
const AHEAD = 32;

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
   * Does the work and turns its failure into a {@link LockError}.
   *
   * @param subject what the work is about, such as `Record "nightly"`
   */
  async attempt<T>(subject: string, work: () => Promise<T>, key?: string): Promise<T> {
    try {
      return await work();
    } catch (cause) {
      throw this.unavailable(subject, cause, key);
    }
  }

  /**
   * Yields what `read` returns for each child of the folder, unless that is null. Reads the names of all children at
   * once, because the server has no pagination, and the children themselves as the list is consumed.
   */
  async *list<T>(
    subject: string,
    folder: string,
    read: (name: string) => Promise<T | null> | undefined,
  ): AsyncGenerator<T> {
    const names = await this.attempt(subject, async () => {
      // Write first, or a server that lags behind its leader would miss the latest children.
      await this.session.heartbeat();
      return this.session.client.children(folder);
    });
    const reads: Promise<T | null>[] = [];
    for (const name of names) {
      const next = read(name);
      if (!next) continue;
      // The error is rethrown when the list reaches this child, if the consumer gets that far.
      next.catch(() => undefined);
      reads.push(next);
      const first = reads.length < AHEAD ? null : await reads.shift();
      if (first) yield first;
    }
    for (const each of reads) {
      const child = await each;
      if (child) yield child;
    }
  }

  /**
   * The error for a request that was refused or got no response.
   *
   * @param subject such as `Lock "order"`
   * @param key undefined if it isn't about a lock
   */
  unavailable(subject: string, cause: unknown, key?: string): LockError {
    // If a request got no response, the reason why no session is up says more.
    const why = isFailure(cause, 'unanswered') ? (this.trouble ?? cause) : cause;
    const words = why instanceof ZooKeeperFailure ? ` (${why.message})` : '';
    let outcome = 'did not respond';
    if (isFailure(why, 'refused')) outcome = 'refused the request';
    else if (isFailure(why, 'misconfigured')) outcome = 'cannot be reached';
    const message = `${subject} of provider "${this.backend.name}" is not available: ZooKeeper ${outcome}${words}. Check the servers and their logs.`;
    return this.errorOf(message, key, why);
  }

  /** `LockConfigError` for a lasting refusal, otherwise `LockUnavailableError`. */
  errorOf(message: string, key: string | undefined, cause: unknown): LockError {
    const details = { key, provider: this.backend.name, cause };
    // A single server may be misconfigured temporarily, for example during a rolling restart, so only a lasting refusal
    // counts.
    const isLasting =
      isFailure(cause, 'refused') &&
      this.refusedSince !== undefined &&
      this.backend.clock.now() - this.refusedSince >= REFUSAL_RETRIED_FOR;
    return isLasting || (cause instanceof ZooKeeperFailure && cause.isDefinite)
      ? new LockConfigError(message, { ...details, refused: true })
      : new LockUnavailableError(message, details);
  }
}
