/** The holder of a lock that stayed busy, as far as the process knows that was kept out. Holders change, so it is for people, not for decisions. */
export interface LockHolder {
  /** The module option `instance` of the holder, or 12 digits where no name is known; `null` if it is unknown or there are several holders. */
  readonly instance: string | null;
  /** The decorated method that holds it, such as `OrderService.pay`: known only of the caller's own process, and else `null`. */
  readonly method: string | null;
  /** Since when it is held, by the clock of the caller's machine; `null` if that is unknown or there are several holders. */
  readonly since: Date | null;
  /** How many hold it, as far as the process knows: several in the modes `shared` and `limited`. */
  readonly holders: number;
}
