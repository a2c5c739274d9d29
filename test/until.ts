/**
 * Timeout of a test's wait, in ms. A condition takes milliseconds, or seconds on a busy machine; only a hang takes
 * longer.
 */
export const TIMEOUT = 40_000;

/** Polls until `condition` holds, and fails after `within` ms with the result of `whyNot` as the cause. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  within = TIMEOUT,
  whyNot?: () => unknown,
): Promise<void> {
  const begun = Date.now();
  for (let waited = 0; waited < within; waited = Date.now() - begun) {
    if (await condition()) return;
    // Polls less often over time, because a condition that depends on a lease's end would otherwise be evaluated
    // hundreds of times.
    await new Promise((resolve) => setTimeout(resolve, 2 + Math.min(waited / 20, 20)));
  }
  throw new Error(`Timed out after ${within} ms waiting until ${what}.`, { cause: whyNot?.() });
}
