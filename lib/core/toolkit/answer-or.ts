/** The result of `query`, or `otherwise` if it throws. For optional methods of third-party backends: a bug in them must not affect a lock. */
export function answerOr<T>(otherwise: T, query: () => T): T {
  try {
    return query();
  } catch {
    return otherwise;
  }
}
