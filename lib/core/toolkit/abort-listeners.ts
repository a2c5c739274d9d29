/** A caller or a request that leaves when a signal aborts. */
interface Leaving {
  leave(): void;
}

// One listener for all that leave by a signal: Node warns of a leak from the eleventh listener on.
const under = new WeakMap<AbortSignal, Set<Leaving>>();

function leaveAll(this: AbortSignal): void {
  for (const leaving of under.get(this) ?? []) leaving.leave();
}

/** `leaving` leaves when the signal aborts, or now if it has aborted. */
export function leaveOnAbort(signal: AbortSignal, leaving: Leaving): void {
  if (signal.aborted) {
    leaving.leave();
    return;
  }
  const all = under.get(signal) ?? new Set();
  under.set(signal, all.add(leaving));
  // Does nothing when it listens already.
  signal.addEventListener('abort', leaveAll);
}

/** Takes back {@link leaveOnAbort}. */
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

/** Runs `work` under a signal that aborts with any of these. `AbortSignal.any` of Node 20 leaves an entry with a signal that outlives the call. */
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

/** The result of `work`. Calls `onAbort` when the signal aborts meanwhile; before the work, if it has aborted already. */
export async function withAbort<T>(signal: AbortSignal, onAbort: () => void, work: () => Promise<T>): Promise<T> {
  const leaving = { leave: onAbort };
  leaveOnAbort(signal, leaving);
  try {
    return await work();
  } finally {
    forgetAbort(signal, leaving);
  }
}
