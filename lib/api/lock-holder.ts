/**
 * The holder of a lock that stayed busy, as far as the waiting process knows. For display only: don't base decisions on
 * it, because holders change.
 */
export interface LockHolder {
  /**
   * The holder's `instance` module option, or its 12-digit id if the name is unknown; `null` if both are unknown or
   * there are several holders.
   */
  readonly instance: string | null;
  /**
   * The decorated method that holds the lock, such as `OrderService.pay`, if it runs in the caller's own process;
   * otherwise `null`.
   */
  readonly method: string | null;
  /**
   * When the holder acquired the lock, by the clock of the caller's machine; `null` if unknown or if there are several
   * holders.
   */
  readonly since: Date | null;
  /** The number of holders, as far as the process knows; can exceed one in `shared` and `limited` modes. */
  readonly holders: number;
}
