import type { LockLogger } from '../../api/logger.js';
import type { LockNode } from './lock-node.js';
import { isFailure } from './zookeeper-failure.js';

/**
 * Nodes whose removal was not acknowledged. Each blocks its key until it is gone. If the removal was refused, the
 * node remains until the session ends.
 *
 * Only the backend knows about these nodes. The core retries an unanswered release only while the lease may still be
 * valid, but a node lives as long as the session, which the process's other locks keep alive. Also, the core never
 * releases a request that resolved to `busy`.
 */
export class PendingRemovals {
  readonly #nodes = new Map<LockNode, () => void>();
  #isTrying = false;
  #hasReported = false;

  constructor(private readonly logger: LockLogger) {}

  /**
   * @param onGone called when the node is gone or its session has ended
   * @param cause why the removal was not acknowledged
   */
  add(node: LockNode, onGone: () => void, cause: unknown): void {
    this.#nodes.set(node, onGone);
    this.#report(node, cause);
  }

  /** Retries each removal once. */
  async retry(): Promise<void> {
    if (this.#isTrying) return;
    this.#isTrying = true;
    await Promise.all([...this.#nodes].map((each) => this.#retry(...each)));
    this.#isTrying = false;
  }

  async #retry(node: LockNode, onGone: () => void): Promise<void> {
    try {
      if (!node.session.isOver) await node.remove();
    } catch (error) {
      this.#report(node, error);
      return;
    }
    this.#nodes.delete(node);
    onGone();
  }

  /** Logs only the first refusal, because later ones have the same reason. */
  #report(node: LockNode, cause: unknown): void {
    if (this.#hasReported || !isFailure(cause, 'refused')) return;
    this.#hasReported = true;
    this.logger.error(
      `ZooKeeper refused to remove ${node.path} (${cause.message}), so its key stays locked until the current session ends. ` +
        'Grant this process permission "d" on the parent node, then delete the node or restart the process. (Logged once.)',
    );
  }
}
