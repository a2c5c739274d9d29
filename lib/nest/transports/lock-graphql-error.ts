import { LockError } from '../../api/errors.js';
import { isIterable, isIteration } from '../methods/streams.js';
import { toClientError } from './client-error.js';

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
  const { kind, message, code, retryAfter } = toClientError(error);
  if (kind === 'misuse') return error;
  return new LockGraphqlError(message, retryAfter === undefined ? { code } : { code, retryAfter }, error);
}

/** As much as is read of GraphQL's `info`, the fourth argument of a resolver. */
interface ResolveInfo {
  readonly operation: { readonly operation: string };
  readonly path: { readonly prev: unknown };
}

/**
 * The value that a resolver gave, as GraphQL iterates it, with lock errors as GraphQL reports them; any other value as it is.
 *
 * A generator acquires its lock at its first `next()`, and loses it later still. The filters of Nest have run by then. Only this view for
 * GraphQL changes: a caller inside the application that iterates the same method gets the lock errors themselves.
 */
export function reportedToGraphql(value: unknown, info: unknown): unknown {
  return isIterated(value, info as ResolveInfo | undefined) ? reportedIteration(value) : value;
}

function reportedIteration(values: AsyncIterable<unknown>): AsyncIterableIterator<unknown> {
  const source = values[Symbol.asyncIterator]();
  const leave = source.return?.bind(source);
  const fail = source.throw?.bind(source);
  const reported = async <T>(step: () => Promise<T>): Promise<T> => {
    try {
      return await step();
    } catch (error) {
      throw LockError.is(error) ? toGraphqlError(error) : error;
    }
  };
  return {
    next: (...args) => reported(() => source.next(...args)),
    // GraphQL asks whether they are there.
    ...(leave && { return: (value) => reported(() => leave(value)) }),
    ...(fail && { throw: (error) => reported(() => fail(error)) }),
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

// The result of a subscription is iterated, and so is a generator for a list (GraphQL 17). Another async iterable may be an object whose
// fields are resolved, such as a page of results.
function isIterated(value: unknown, info: ResolveInfo | undefined): value is AsyncIterable<unknown> {
  const isSubscription = info?.operation.operation === 'subscription' && info.path.prev === undefined;
  return isSubscription ? isIterable(value) : isIteration(value);
}
