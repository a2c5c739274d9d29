import { LockConfigError } from '../../api/errors.js';
import type { LockCapabilities } from '../../api/lock-provider.js';

/** The shortest allowed lease, in ms. The safety margin and late timers would use up a shorter one. */
export const MIN_LEASE = 100;

/** @throws LockConfigError if the time exceeds the provider's `maxLease` */
export function assertKeepable(
  time: number,
  option: 'lease' | 'minHold',
  { name, capabilities }: { readonly name: string; readonly capabilities: LockCapabilities },
): void {
  const { maxLease = Infinity } = capabilities;
  if (time <= maxLease) return;
  throw new LockConfigError(
    `Option "${option}" is ${time} ms, which exceeds "maxLease" of lock provider "${name}" (${maxLease} ms): shorten it, or raise maxLease in all processes.`,
    { provider: name },
  );
}
