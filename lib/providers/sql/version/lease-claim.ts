import { isContention } from '../connection/failure.js';
import type { Lease, LeaseHold } from './lease.js';

/** A lease that a request has. */
export interface GrantedLease {
  /** The token of its first caller. */
  readonly fencingToken: bigint | null;
  /** How many callers may have it behind the first. */
  readonly followers: number;
  /** For how many ms the row keeps it. */
  readonly remaining: number;
}

/**
 * A lease that a look has found in the row. It shows that a claim was executed, not that it survives a failover: Postgres shows a row whose COMMIT
 * waits for a standby as soon as the connection of that COMMIT has ended. If that standby is promoted, it does not have the row, and grants the
 * lease to another caller.
 */
export interface FoundLease extends GrantedLease {
  /** The statement that put it there was acknowledged, so it survives. Otherwise it counts from the first renewal that is acknowledged. */
  readonly isAcknowledged: boolean;
}

/** The statements by which one request takes, renews and frees its lease. Each kind of lease has its own. */
export interface LeaseClaim {
  /**
   * Whether the request is in the row, or a statement that puts it there was sent and may still arrive: then it has to be released. A look
   * changes nothing.
   */
  readonly sent: boolean;
  /** Compares what was sent with the row, or with its absence. Gives the lease if the request has it there. */
  look(seen: Lease | undefined): FoundLease | undefined | Promise<FoundLease | undefined>;
  /** Whether a claim may be granted on a row in which {@link look} has found no lease of this request. */
  fits(seen: Lease): boolean;
  /** Asks for the lease. Undefined if another claim was faster, or if only the next look shows the outcome. */
  claim(seen: Lease): Promise<GrantedLease | undefined>;
  /** Renews the lease to `duration` ms from now. Resolves to whether the request still had it. */
  renew(duration: number): Promise<boolean>;
  /** Frees whatever was sent, or retains the lease for `keepFor` ms. Resolves to whether the request had the lease. */
  release(keepFor: number): Promise<boolean>;
}

/** For how many ms the row keeps a hold. */
export function remainingOf({ serverTime }: Lease, { expires }: LeaseHold): number {
  return (expires - serverTime) / 1000;
}

/** The answer to a claim. Undefined also where the server has undone it: another transaction had the row. */
export async function unlessUndone<T>(claim: Promise<T>): Promise<T | undefined> {
  try {
    return await claim;
  } catch (error) {
    if (isContention(error)) return undefined;
    throw error;
  }
}
