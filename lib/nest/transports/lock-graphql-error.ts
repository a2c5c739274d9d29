import { LockError } from '../../api/errors.js';
import { isIterable, isIteration } from '../methods/results/streams.js';
import { toClientError } from './client-error.js';

/**
 * A lock error as GraphQL reports it. The lock error itself is the `cause`. GraphQL copies the `extensions` of any
 * error that a resolver throws, so this class neither needs `GraphQLError` nor loads a GraphQL package.
 */
export class LockGraphqlError extends Error {
  override readonly name = 'LockGraphqlError';

  /** @internal */
  constructor(
    message: string,
    /**
     * The lock error's code, such as `LOCK_BUSY`, and the number of seconds to wait before retrying, if a retry helps.
     */
    readonly extensions: { readonly code: string; readonly retryAfter?: number },
    cause: LockError,
  ) {
    super(message, { cause });
  }
}

/**
 * The error that a resolver throws instead of a lock error. Misuse errors are left unchanged, like any other bug in a
 * resolver.
 */
export function toGraphqlError(error: LockError): LockGraphqlError | LockError {
  const { kind, message, details } = toClientError(error);
  return kind === 'misuse' ? error : new LockGraphqlError(message, details, error);
}

/** The part of GraphQL's `info` (a resolver's fourth argument) read here. */
interface ResolveInfo {
  readonly operation: { readonly operation: string };
  readonly path: { readonly prev: unknown };
}

/**
 * A resolver's result. If GraphQL iterates over it, lock errors are mapped; any other value is left unchanged.
 *
 * A generator acquires its lock on the first `next()` call, and may lose it later. By then, Nest's filters have run.
 * Only GraphQL gets the mapped errors: application code that iterates over the result gets the original lock errors.
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
    // GraphQL checks whether these methods exist.
    ...(leave && { return: (value) => reported(() => leave(value)) }),
    ...(fail && { throw: (error) => reported(() => fail(error)) }),
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

// GraphQL iterates over a subscription's result and, in GraphQL 17, a generator for a list. Any other async iterable
// may be an object whose fields are resolved, such as a page of results.
function isIterated(value: unknown, info: ResolveInfo | undefined): value is AsyncIterable<unknown> {
  const isSubscription = info?.operation.operation === 'subscription' && info.path.prev === undefined;
  return isSubscription ? isIterable(value) : isIteration(value);
}
