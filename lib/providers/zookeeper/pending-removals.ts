import type { LockNode } from './lock-node.js';

/**
 * Nodes whose removal was not acknowledged: each blocks its key until it is gone.
 *
 * Only this backend can know of them. The core repeats an unanswered release while the lease may last, but a node lives as long as its
 * session, and the other locks of the process keep that alive. And the core never releases an attempt that was answered with `busy`.
 */
export class PendingRemovals {
  readonly #nodes = new Map<LockNode, () => void>();
  #isTrying = false;

  /** @param onGone called when the node is gone, or its session is over */
  add(node: LockNode, onGone: () => void): void {
    this.#nodes.set(node, onGone);
  }

  /** Tries each once more. */
  async retry(): Promise<void> {
    if (this.#isTrying) return;
    this.#isTrying = true;
    await Promise.allSettled([...this.#nodes].map((each) => this.#retry(...each)));
    this.#isTrying = false;
  }

  async #retry(node: LockNode, onGone: () => void): Promise<void> {
    if (!node.session.isOver) await node.remove();
    this.#nodes.delete(node);
    onGone();
  }
}
