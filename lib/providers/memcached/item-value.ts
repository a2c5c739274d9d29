/** A hold, as the value of its item. Times are on the holder's own monotonic clock; no other process reads them. */
export interface Hold {
  readonly holder: string;
  /** When the lease ends. A request that is repeated finds this time, so it cannot extend the lease. */
  readonly leaseEndsAt: number;
  /** Until when the key stays locked in any case (`minHold`). */
  readonly keptUntil: number;
}

/** The value of a key that was released before its `minHold` had passed. */
// The text is stored on servers, so it stays.
export const RETAINED = 'parked';

export function textOf({ holder, leaseEndsAt, keptUntil }: Hold): string {
  return `${holder} ${leaseEndsAt} ${keptUntil}`;
}

/** The holder in a value that is not {@link RETAINED}. */
export function holderIn(value: string): string {
  const [holder = ''] = value.split(' ');
  return holder;
}

/** The hold of `holder`, if the value is one of it. */
export function holdOf(value: string, holder: string): Hold | undefined {
  const [owner, leaseEndsAt, keptUntil] = value.split(' ');
  if (owner !== holder) return undefined;
  return { holder, leaseEndsAt: Number(leaseEndsAt), keptUntil: Number(keptUntil) };
}
