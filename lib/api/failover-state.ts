/** The state of the members, as a failover provider sees it. */
export interface FailoverState {
  /** The provider that grants locks, or `null` while that is not known. */
  readonly active: string | null;
  /** Grows with every switch. */
  readonly epoch: number;
  /** The health of each provider, as this process sees it. */
  readonly providers: Readonly<Record<string, ProviderState>>;
  /** The latest switches, oldest first. */
  readonly history: readonly ProviderSwitch[];
}

/**
 * - `up`: it answers.
 * - `down`: it has failed several times in a row.
 * - `recovering`: it grants again, but not yet for long enough to be preferred.
 */
export type ProviderState = 'up' | 'down' | 'recovering';

/** One change of the provider that grants locks. */
export interface ProviderSwitch {
  readonly epoch: number;
  readonly from: string;
  readonly to: string;
  readonly reason: SwitchReason;
  /** By the wall clock of the process that switched, in ms since the Unix epoch. For people. */
  readonly at: number;
}

export type SwitchReason = 'failure' | 'failback' | 'manual';
