import { LockConfigError } from '../../api/errors.js';
import type { LockCapabilities } from '../../api/lock-provider.js';

/** The shortest lease, in ms: below it the margin and the timers' own lateness eat the lease up. */
export const MIN_LEASE = 100;

/** @throws LockConfigError for a time that is longer than the provider may keep a key. */
export function assertKeepable(
  time: number,
  option: 'lease' | 'minHold',
  { name, capabilities }: { readonly name: string; readonly capabilities: LockCapabilities },
): void {
  const { maxLease = Infinity } = capabilities;
  if (time <= maxLease) return;
  throw new LockConfigError(
    `Option "${option}" is ${time} ms, longer than "maxLease" of lock provider "${name}", which is ${maxLease} ms: shorten it, or raise maxLease in all processes.`,
    { provider: name },
  );
}
