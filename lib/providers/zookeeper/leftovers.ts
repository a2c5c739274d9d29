import type { LockNode } from './lock-node.js';

/** Nodes that nobody wants any more and that were not seen to go: each blocks its key until it does. */
export class Leftovers {
  readonly #nodes = new Map<LockNode, () => void>();
  #isTrying = false;

  /** @param onGone called when it is gone, or its session is over. */
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
    if (!node.session.isOver && (await node.remove()) === 'pending') return;
    this.#nodes.delete(node);
    onGone();
  }
}
