/**
 * The result of `query`, or `otherwise` if it throws. Used for third-party backends' optional methods, whose bugs must
 * not affect a lock.
 */
export function answerOr<T>(otherwise: T, query: () => T): T {
  try {
    return query();
  } catch {
    return otherwise;
  }
}
