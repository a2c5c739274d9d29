/**
 * The promise of `work`, or a rejection with the error that it throws. For work that others have written.
 *
 * An async function that awaits it makes two promises more. On Node 20 each of these costs 0.3 µs once an `AsyncLocalStorage` is in use.
 */
export function promised<T>(work: () => Promise<T>): Promise<T> {
  try {
    return work();
  } catch (error) {
    return Promise.reject(error);
  }
}
