const ENDS: readonly unknown[] = ['COMMIT', 'ROLLBACK'];

/**
 * Lets the statements of the application into the transaction of a lock, while it is one. What came behind its end would
 * be committed by itself, without the lock.
 */
export class TransactionGate {
  #stage: 'none' | 'open' | 'rolling-back' = 'none';

  /** Nobody has ended it. */
  get isOpen(): boolean {
    return this.#stage === 'open';
  }

  get isOver(): boolean {
    return this.#stage === 'none';
  }

  begin(): void {
    this.#stage = 'open';
  }

  /** From now on only what rolls it back may pass. A COMMIT of the application would make last what is to be undone. */
  rollBack(): void {
    if (this.#stage === 'open') this.#stage = 'rolling-back';
  }

  /** It is over, or may be. */
  close(): void {
    this.#stage = 'none';
  }

  /**
   * Answers whether the statement has to be sent. Its end, which lets nothing pass behind it, is the first COMMIT or ROLLBACK,
   * whoever sends it.
   *
   * @throws when the transaction has ended.
   */
  admit(sql: unknown): boolean {
    const isEnd = isEndOfTransaction(sql);
    if (this.#stage === 'rolling-back' && !isEnd && String(sql).startsWith('ROLLBACK TO SAVEPOINT ')) return false;
    if (this.#stage === 'none' || (this.#stage === 'rolling-back' && sql !== 'ROLLBACK')) {
      throw new Error('The transaction of the lock has ended: this statement was not run.');
    }
    if (isEnd) this.close();
    return true;
  }
}

export function isEndOfTransaction(sql: unknown): boolean {
  return ENDS.includes(sql);
}
