/** One call on a mutex, as its caller saw it. Moments are numbers that grow; Infinity: it never came back. */
export interface Operation {
  readonly holder: number;
  readonly invoked: number;
  readonly returned: number;
  /**
   * `acquired`, `released`: it did. `busy`: somebody else had it at some moment of the call. `maybe-acquired`, `maybe-released`:
   * the caller left, or was not answered; it may have happened once at any moment from its call on, or never.
   */
  readonly outcome: 'acquired' | 'released' | 'busy' | 'maybe-acquired' | 'maybe-released';
}

/**
 * Whether the history could be that of one mutex: whether there is a moment within each call at which it took effect, so that all
 * together are legal. (Wing and Gong's search, with Lowe's memory of what was tried.)
 */
export function isHistoryOfMutex(operations: readonly Operation[]): boolean {
  const tried = new Set<string>();
  const all = operations.map((_, index) => index);

  function search(open: readonly number[], owner: number | undefined): boolean {
    if (open.every((index) => isOptional(operations[index]))) return true;
    const state = `${owner}:${open.join()}`;
    if (tried.has(state)) return false;
    tried.add(state);
    // What comes next has begun before any of the others has ended.
    const horizon = Math.min(...open.map((index) => endOf(operations[index])));
    return open.some((index) => {
      const operation = operations[index]!;
      if (operation.invoked > horizon) return false;
      const next = apply(operation, owner);
      return (
        next !== 'illegal' &&
        search(
          open.filter((other) => other !== index),
          next,
        )
      );
    });
  }
  return search(all, undefined);
}

const isOptional = (operation: Operation | undefined) => operation?.outcome.startsWith('maybe') ?? true;
const endOf = (operation: Operation | undefined) =>
  operation && !isOptional(operation) ? operation.returned : Infinity;

function apply({ holder, outcome }: Operation, owner: number | undefined): number | undefined | 'illegal' {
  switch (outcome) {
    case 'acquired':
    case 'maybe-acquired':
      return owner === undefined ? holder : 'illegal';
    case 'released':
    case 'maybe-released':
      return owner === holder ? undefined : 'illegal';
    case 'busy':
      return owner !== undefined && owner !== holder ? owner : 'illegal';
  }
}
