import type { LockError } from '../../../api/errors.js';
import { toClientError } from '../client-error.js';
import { logLoss } from '../log-loss.js';

/**
 * A lock error as GraphQL reports it; the lock error itself is the `cause`. GraphQL takes over the `extensions` of any
 * error that a resolver throws, so this is no `GraphQLError`, and no package of GraphQL is loaded for it.
 */
export class LockGraphqlError extends Error {
  override readonly name = 'LockGraphqlError';

  /** @internal */
  constructor(
    message: string,
    /** The lock error's code, such as `LOCK_BUSY`; and after how many seconds to try again, where that helps. */
    readonly extensions: { readonly code: string; readonly retryAfter?: number },
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
