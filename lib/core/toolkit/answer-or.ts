/** The answer of `ask`, or `otherwise` if it throws. For questions to code that others have written, on which no lock may depend. */
export function answerOr<T>(otherwise: T, ask: () => T): T {
  try {
    return ask();
  } catch {
    return otherwise;
  }
}
