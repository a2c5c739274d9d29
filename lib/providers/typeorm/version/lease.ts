import type { LimitTerms } from '../../../api/lock-options.js';

/** Somebody who has a row. */
export interface LeaseHold {
  /** Undefined where it is retained: released before its `minHold` had passed. */
  readonly holder: string | undefined;
  readonly token: bigint;
  /** Undefined for an exclusive one. */
  readonly limited: LimitTerms | undefined;
  /** In µs since 1970. */
  readonly expires: number;
}

/** A row, by the database's clock. */
export interface Lease {
  /** The version of the row: the last token, or larger. */
  readonly version: bigint;
  /** When it was read, in µs since 1970. */
  readonly serverTime: number;
  /** Those that have not ended, the latest last. Without one the row is free. */
  readonly holds: readonly LeaseHold[];
}

/** A row as the drivers answer it; a 64-bit number comes as a number, as text or as a bigint, and bytes as a Buffer. */
export interface LeaseColumns {
  readonly token: string | number | bigint;
  readonly holder: string | Buffer | null;
  readonly holders: string | Buffer | null;
  readonly expires: string | number | bigint;
  readonly server_time: string | number | bigint;
}

export function leaseOf({ token, holder, holders, expires, server_time }: LeaseColumns): Lease {
  const version = BigInt(token);
  const serverTime = Number(server_time);
  const end = Number(expires);
  const all =
    holders === null
      ? [{ holder: holder?.toString(), token: version, limited: undefined, expires: end }]
      : readHolders(holders.toString());
  return { version, serverTime, holds: end > serverTime ? all.filter((hold) => hold.expires > serverTime) : [] };
}

/** Whether the row is granted beside these, to a limited lock on these terms or to an exclusive one. */
export function admits(holds: readonly LeaseHold[], terms: LimitTerms | undefined): boolean {
  if (holds.length === 0) return true;
  if (!terms || holds.some(({ limited }) => !limited)) return false;
  return usedBy(holds) + terms.weight <= Math.min(smallestLimit(holds), terms.limit);
}

/** The smallest limit of the others, if that is not the one of these terms. */
export function otherLimit(others: readonly LeaseHold[], terms: LimitTerms | undefined): number | undefined {
  const smallest = smallestLimit(others);
  return terms && smallest !== Infinity && smallest !== terms.limit ? smallest : undefined;
}

/** How much limited holds take together. */
export function usedBy(holds: readonly LeaseHold[]): number {
  return holds.reduce((used, { limited }) => used + (limited?.weight ?? 0), 0);
}

/** Of limited holds; `Infinity` without one. */
export function smallestLimit(holds: readonly LeaseHold[]): number {
  return holds.reduce((smallest, { limited }) => Math.min(smallest, limited?.limit ?? Infinity), Infinity);
}

/** A hold in the column `holders`: a list without names, because each write contains all holds. */
type Entry = readonly [holder: string | null, token: string, weight: number, limit: number, expires: number];

/** What the column `holders` has of these. */
export function writeHolders(holds: readonly LeaseHold[]): string | null {
  if (holds.length === 0) return null;
  return JSON.stringify(
    holds.map(({ holder = null, token, limited, expires }): Entry => {
      const { weight = 1, limit = 1 } = limited ?? {};
      return [holder, String(token), weight, limit, expires];
    }),
  );
}

function readHolders(text: string): readonly LeaseHold[] {
  return (JSON.parse(text) as readonly Entry[]).map(([holder, token, weight, limit, expires]) => ({
    holder: holder ?? undefined,
    token: BigInt(token),
    limited: { weight, limit },
    expires,
  }));
}
