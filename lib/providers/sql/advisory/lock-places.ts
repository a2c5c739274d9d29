import type { BackendContext } from '../../../api/lock-provider.js';
import { LockCapacityError } from '../../../api/errors.js';
import { type ConnectionRequest, ConnectionSlots } from '../connection/connection-slots.js';

// Which part of the server's lock table one provider of one process may have. Eight of them then fill what is promised to all clients; Postgres 15 took 1.7
// times as many locks (measured) before it refused statements of everybody.
const SHARE = 8;
// A server that is configured to be tiny has room for so many all the same: what its settings promise is less than what it has.
const LEAST = 16;
// For callers that hold a lock already: if callers with one lock each had all places, none of them could get its second one.
const NESTED = 8;

/** How many locks a provider may have on the connection that they share, where the server has one table for the locks of all its clients. */
export class LockPlaces {
  readonly #most: number;
  readonly #slots: ConnectionSlots;

  /** @param inTable how many locks the table of the server has room for */
  constructor(
    private readonly context: Pick<BackendContext, 'name' | 'clock'>,
    private readonly inTable: number,
  ) {
    this.#most = Math.max(LEAST, Math.floor(inTable / SHARE));
    this.#slots = new ConnectionSlots(context.clock, this.#most, NESTED);
  }

  /** Takes a place before a lock is asked for. @throws LockCapacityError when none was free in the time of the request */
  take(request: ConnectionRequest): Promise<void> {
    return this.#slots.take(request, (key) => this.#exhausted(key));
  }

  free(): void {
    this.#slots.free();
  }

  #exhausted(key: string | undefined): LockCapacityError {
    const { name: provider } = this.context;
    return new LockCapacityError(
      `Lock ${key === undefined ? '' : `"${key}" `}of provider "${provider}" was not acquired. This provider has as many advisory locks as one may have in a process: ${this.#most}, ` +
        `an eighth of the ${this.inTable} places that the lock table of this Postgres promises to all its clients (max_locks_per_transaction × (max_connections + max_prepared_transactions)), ` +
        `and the last ${NESTED} are for callers that hold a lock. Hold fewer locks at a time, raise max_locks_per_transaction, or use the version lock, which has no such limit.`,
      { ...(key !== undefined && { key }), provider },
    );
  }
}
