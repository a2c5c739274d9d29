/** What the value of a lock's item says. Times are on the holder's own monotonic clock, which nobody else reads. */
export interface Hold {
  readonly holder: string;
  /** Until when the lease runs. Asking again finds it, which therefore cannot prolong it. */
  readonly leaseEndsAt: number;
  /** Until when the key stays taken in any case (`minHold`). */
  readonly keptUntil: number;
}

/** The value of a key that was released before its `minHold` had passed. */
export const PARKED = 'parked';

export function textOf({ holder, leaseEndsAt, keptUntil }: Hold): string {
  return `${holder} ${leaseEndsAt} ${keptUntil}`;
}

/** The hold of `holder`, if the value is one of it. */
export function holdOf(value: string, holder: string): Hold | undefined {
  const [owner, leaseEndsAt, keptUntil] = value.split(' ');
  if (owner !== holder) return undefined;
  return { holder, leaseEndsAt: Number(leaseEndsAt), keptUntil: Number(keptUntil) };
}
