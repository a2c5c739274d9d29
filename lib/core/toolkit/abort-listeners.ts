/** A caller or request that stops waiting when a signal aborts. */
interface Leaving {
  leave(): void;
}

// Each signal has a single listener, which notifies all its subscribers: Node warns of a leak at the eleventh listener.
const under = new WeakMap<AbortSignal, Set<Leaving>>();

function leaveAll(this: AbortSignal): void {
  for (const leaving of under.get(this) ?? []) leaving.leave();
}

/** Calls `leaving.leave()` when the signal aborts, or immediately if it is already aborted. */
export function leaveOnAbort(signal: AbortSignal, leaving: Leaving): void {
  if (signal.aborted) {
    leaving.leave();
    return;
  }
  const all = under.get(signal) ?? new Set();
  under.set(signal, all.add(leaving));
  // Does nothing if the listener is already registered.
  signal.addEventListener('abort', leaveAll);
}

/** Undoes {@link leaveOnAbort}. */
export function forgetAbort(signal: AbortSignal, leaving: Leaving): void {
  const all = under.get(signal);
  if (all?.delete(leaving) && all.size === 0) signal.removeEventListener('abort', leaveAll);
}

/** Resolves when the signal aborts. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    leaveOnAbort(signal, { leave: resolve });
  });
}

/**
 * Passes `work` a signal that aborts as soon as any of `signals` does. Unlike `AbortSignal.any`, doesn't leak on Node
 * 20 if one of them outlives the call.
 */
export function underAny<T>(signals: readonly AbortSignal[], work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  let under = () => work(controller.signal);
  for (const signal of signals) {
    const inner = under;
    const passOn = () => {
      controller.abort(signal.reason);
    };
    under = () => withAbort(signal, passOn, inner);
  }
  return under();
}

/**
 * Returns the result of `work`. Calls `onAbort` if the signal aborts in the meantime, or before `work` if it has
 * already aborted.
 */
export async function withAbort<T>(signal: AbortSignal, onAbort: () => void, work: () => Promise<T>): Promise<T> {
  const leaving = { leave: onAbort };
  leaveOnAbort(signal, leaving);
  try {
    return await work();
  } finally {
    forgetAbort(signal, leaving);
  }
}
