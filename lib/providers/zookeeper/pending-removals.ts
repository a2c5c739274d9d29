import type { LockLogger } from '../../api/logger.js';
import type { LockNode } from './lock-node.js';
import { isFailure } from './zookeeper-client.js';

/**
 * Nodes whose removal was not acknowledged: each blocks its key until it is gone. One whose removal was refused is gone when its session ends.
 *
 * Only this backend can know of them. The core repeats an unanswered release while the lease may last, but a node lives as long as its
 * session, and the other locks of the process keep that alive. And the core never releases a request that was answered with `busy`.
 */
export class PendingRemovals {
  readonly #nodes = new Map<LockNode, () => void>();
  #isTrying = false;
  #hasReported = false;

  constructor(private readonly logger: LockLogger) {}

  /**
   * @param onGone called when the node is gone, or its session is over
   * @param cause why its removal was not acknowledged
   */
  add(node: LockNode, onGone: () => void, cause: unknown): void {
    this.#nodes.set(node, onGone);
    this.#report(node, cause);
  }

  /** Tries each once more. */
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

  /** Reports the first refusal. The others have the same reason. */
  #report(node: LockNode, cause: unknown): void {
    if (this.#hasReported || !isFailure(cause, 'refused') || !(cause instanceof Error)) return;
    this.#hasReported = true;
    this.logger.error(
      `ZooKeeper refuses to remove ${node.path} (${cause.message}), so its key stays locked until the session of this process ends. ` +
        'Grant this process the permission "d" on the folder of the node, then delete the node or restart this process. (Reported once.)',
    );
  }
}
