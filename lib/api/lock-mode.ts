/**
 * `exclusive`: one holder. `shared`: any number of holders. `limited`: at most `limit` holders. Holders of different modes exclude each
 * other.
 */
export type LockMode = 'exclusive' | 'shared' | 'limited';

/** The limit of a limited lock, and the part of it that one holder takes. */
export interface LimitShare {
  /** How much all holders together may take. */
  readonly limit: number;
  /** How much of it this holder takes. */
  readonly weight: number;
}
