/** The state of a failover provider's members, as this process sees it. */
export interface FailoverState {
  /** The provider that grants locks, or `null` while it is unknown. */
  readonly active: string | null;
  /** A number that grows with every switch. */
  readonly epoch: number;
  /** The health of each provider. */
  readonly providers: Readonly<Record<string, ProviderState>>;
  /** The latest switches, oldest first. */
  readonly history: readonly ProviderSwitch[];
}

/**
 * The health of a provider.
 *
 * - `up`: it answers.
 * - `down`: it failed several times in a row.
 * - `recovering`: it is granting locks again, but has not done so for long enough to be preferred.
 */
export type ProviderState = 'up' | 'down' | 'recovering';

/** A switch to another provider. */
export interface ProviderSwitch {
  readonly epoch: number;
  readonly from: string;
  readonly to: string;
  readonly reason: SwitchReason;
  /** When it switched, by the wall clock of the process that switched, in ms since the Unix epoch. For display only. */
  readonly at: number;
}

export type SwitchReason = 'failure' | 'failback' | 'manual';
