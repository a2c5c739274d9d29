/** How long a test waits, in ms. A condition takes milliseconds, and seconds on a busy machine. Only a hang takes longer. */
export const TIMEOUT = 40_000;

/** Resolves when `condition` holds; looks often, and fails after `within` ms, with what `whyNot` says as its cause. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  within = TIMEOUT,
  whyNot?: () => unknown,
): Promise<void> {
  const begun = Date.now();
  for (let waited = 0; waited < within; waited = Date.now() - begun) {
    if (await condition()) return;
    // Less often after a while: what ends with a lease would be asked hundreds of times.
    await new Promise((resolve) => setTimeout(resolve, 2 + Math.min(waited / 20, 20)));
  }
  throw new Error(`Waited ${within} ms in vain until ${what}.`, { cause: whyNot?.() });
}
