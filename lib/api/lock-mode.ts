/**
 * How many callers may hold a key. `exclusive`: one. `shared`: any number. `limited`: at most `limit`. Holders in
 * different modes exclude each other.
 */
export type LockMode = 'exclusive' | 'shared' | 'limited';

/** The limit of a limited lock, and one holder's share of it. */
export interface LimitShare {
  /** How much all holders may use in total. */
  readonly limit: number;
  /** How much of the limit this holder uses. */
  readonly weight: number;
}
