import {
  LockCapacityError,
  type LockError,
  LockLostError,
  LockUnavailableError,
  VersionConflictError,
} from '../../api/errors.js';
import { isBusy } from '../../api/is-busy.js';

/** A lock error as a client sees it, on every transport: never a key or a provider, which are internal to the server. */
export interface ClientError {
  readonly kind: 'busy' | 'unavailable' | 'lost' | 'conflict';
  readonly message: string;
  /** The lock error's own code, such as `LOCK_BUSY`. */
  readonly code: string;
  /** After how many seconds to try again; absent where trying again would not help. */
  readonly retryAfter?: number;
}

// RFC 9110 §10.2.3: whole seconds. Nobody knows when a lock will be free, so: soon.
const SOON = 1;

/** A lock error as a client sees it; `undefined` for misuse, which is a bug of the server like any other. */
export function toClientError(error: LockError): ClientError | undefined {
  const { code } = error;
  if (isBusy(error)) {
    const message = 'The resource is in use by another request. Try again later.';
    return { kind: 'busy', message, code, retryAfter: SOON };
  }
  if (error instanceof LockUnavailableError || error instanceof LockCapacityError) {
    const message = 'The resource cannot be locked at the moment. Try again later.';
    return { kind: 'unavailable', message, code, retryAfter: SOON };
  }
  if (error instanceof LockLostError) {
    const message = 'The request lost its exclusive access before it was complete. Its outcome is uncertain.';
    return { kind: 'lost', message, code };
  }
  if (error instanceof VersionConflictError) {
    // To try again with the same data would undo what the other one has written.
    const message = 'The resource was changed by another request meanwhile. Nothing of this one was written.';
    return { kind: 'conflict', message, code };
  }
  return undefined;
}
