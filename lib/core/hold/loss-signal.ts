/**
 * The signal of `controller`, which calls `look` whenever it is asked whether it has aborted, or why.
 *
 * After a blocked event loop, code goes on before timers do, with a signal that it has kept, and would learn of a loss too late.
 * So a look at the signal is a look at the clock, which may abort it and call its listeners.
 */
export function lossSignal({ signal }: AbortController, look: () => void): AbortSignal {
  const looking = (name: 'aborted' | 'reason'): PropertyDescriptor => ({
    get: (): unknown => {
      look();
      return Reflect.get(AbortSignal.prototype, name, signal);
    },
  });
  const throwIfAborted = (): void => {
    look();
    AbortSignal.prototype.throwIfAborted.call(signal);
  };
  return Object.defineProperties(signal, {
    aborted: looking('aborted'),
    reason: looking('reason'),
    throwIfAborted: { value: throwIfAborted },
  });
}
