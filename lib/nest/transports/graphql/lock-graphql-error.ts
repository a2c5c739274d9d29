import type { LockError } from '../../../api/errors.js';
import { toClientError } from '../client-error.js';
import { logLoss } from '../log-loss.js';

/** The `extensions` of a lock error among the `errors` of a response. */
export interface LockErrorExtensions {
  /** The lock error's code, such as `LOCK_BUSY`. */
  readonly code: string;
  /** After how many seconds to try again; absent where trying again would not help. */
  readonly retryAfter?: number;
}

/**
 * A lock error as GraphQL reports it; the lock error itself is the `cause`. GraphQL takes over the `extensions` of any
 * error that a resolver throws, so this is no `GraphQLError`, and no package of GraphQL is loaded for it.
 */
export class LockGraphqlError extends Error {
  override readonly name = 'LockGraphqlError';

  constructor(
    message: string,
    readonly extensions: LockErrorExtensions,
    cause: LockError,
  ) {
    super(message, { cause });
  }
}

/** The error that a resolver throws instead of a lock error; misuse as it is, like any other bug of a resolver. */
export function toGraphqlError(error: LockError): LockGraphqlError | LockError {
  logLoss(error);
  const clientError = toClientError(error);
  if (!clientError) return error;
  const { message, code, retryAfter } = clientError;
  return new LockGraphqlError(message, retryAfter === undefined ? { code } : { code, retryAfter }, error);
}
