/** What leaves when a signal aborts. */
interface Leaving {
  leave(): void;
}

// One listener for all attempts under a signal: Node warns of a leak from the eleventh listener on.
const under = new WeakMap<AbortSignal, Set<Leaving>>();

function leaveAll(this: AbortSignal): void {
  for (const attempt of under.get(this) ?? []) attempt.leave();
}

/** The attempt leaves when the signal aborts, or now if it has. */
export function leaveOnAbort(signal: AbortSignal, attempt: Leaving): void {
  if (signal.aborted) {
    attempt.leave();
    return;
  }
  const attempts = under.get(signal) ?? new Set();
  under.set(signal, attempts.add(attempt));
  // Does nothing when it listens already.
  signal.addEventListener('abort', leaveAll);
}

/** Takes back {@link leaveOnAbort}. */
export function forgetAbort(signal: AbortSignal, attempt: Leaving): void {
  const attempts = under.get(signal);
  if (attempts?.delete(attempt) && attempts.size === 0) signal.removeEventListener('abort', leaveAll);
}
