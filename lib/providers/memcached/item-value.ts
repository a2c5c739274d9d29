/** A hold as stored in an item. Times come from the holder's monotonic clock and mean nothing to other processes. */
export interface Hold {
  readonly holder: string;
  /** When the lease ends. A repeated request reads this value back, so it can't extend the lease. */
  readonly leaseEndsAt: number;
  /** The key stays locked until this time, even if it is released earlier (`minHold`). */
  readonly keptUntil: number;
}

/** The item's value after a release before `minHold` had elapsed. */
// Stored on servers, so never change the text.
export const RETAINED = 'parked';

export function textOf({ holder, leaseEndsAt, keptUntil }: Hold): string {
  return `${holder} ${leaseEndsAt} ${keptUntil}`;
}

/** Returns the holder in a value other than {@link RETAINED}. */
export function holderIn(value: string): string {
  const [holder = ''] = value.split(' ');
  return holder;
}

/** Parses the hold if it belongs to `holder`. */
export function holdOf(value: string, holder: string): Hold | undefined {
  const [owner, leaseEndsAt, keptUntil] = value.split(' ');
  if (owner !== holder) return undefined;
  return { holder, leaseEndsAt: Number(leaseEndsAt), keptUntil: Number(keptUntil) };
}
