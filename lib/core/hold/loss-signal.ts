/**
 * Makes `controller`'s signal call `checkClock` before each read of `aborted` or `reason`.
 *
 * When a blocked event loop resumes, your code runs before timers fire, so a plain signal would report a loss too late.
 * Reading this signal therefore checks the clock, which may abort the signal and call its listeners.
 */
export function lossSignal({ signal }: AbortController, checkClock: () => void): AbortSignal {
  const checked = (name: 'aborted' | 'reason'): PropertyDescriptor => ({
    get: (): unknown => {
      checkClock();
      return Reflect.get(AbortSignal.prototype, name, signal);
    },
  });
  const throwIfAborted = (): void => {
    checkClock();
    AbortSignal.prototype.throwIfAborted.call(signal);
  };
  return Object.defineProperties(signal, {
    aborted: checked('aborted'),
    reason: checked('reason'),
    throwIfAborted: { value: throwIfAborted },
  });
}
