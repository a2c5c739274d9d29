/** The state of a failover provider's members, as seen by this process. */
export interface FailoverState {
  /** The provider that currently grants locks, or `null` if unknown. */
  readonly active: string | null;
  /** A number that increases with every switch. */
  readonly epoch: number;
  /** The health of each provider. */
  readonly providers: Readonly<Record<string, ProviderState>>;
  /** The most recent switches, oldest first. */
  readonly history: readonly ProviderSwitch[];
}

/**
 * A provider's health.
 *
 * - `up`: it is responding.
 * - `down`: it failed several times in a row.
 * - `recovering`: it is granting locks again, but hasn't done so for long enough to be preferred.
 */
export type ProviderState = 'up' | 'down' | 'recovering';

/** A switch to another provider. */
export interface ProviderSwitch {
  readonly epoch: number;
  readonly from: string;
  readonly to: string;
  readonly reason: SwitchReason;
  /** When the switch happened, by the switching process's wall clock, in ms since the Unix epoch. For display only. */
  readonly at: number;
}

export type SwitchReason = 'failure' | 'failback' | 'manual';
