/**
 * Calls `work` and turns any error it throws into a rejection. For third-party backends and drivers.
 *
 * An async wrapper would create two more promises. On Node 20, each costs 0.3 µs once an `AsyncLocalStorage` is in use.
 */
export function promised<T>(work: () => Promise<T>): Promise<T> {
  try {
    return work();
  } catch (error) {
    return Promise.reject(error);
  }
}
