import type { ProviderHarness } from './provider-harness.js';
import type { Stage } from './stage.js';

/** A property that all providers, or all that claim it, must have. */
export interface CaseDefinition {
  /** `#5` is a number in the contract list of docs/test-a-provider.md; `#S5` is a seam case. */
  readonly id: string;
  readonly title: string;
  /** What the case needs in order to run. */
  readonly needs?: readonly Need[];
  /** Examines the whole process, so nothing else may run at the same time. */
  readonly alone?: boolean;
  run(stage: Stage): Promise<void>;
}

/** Why a case doesn't run. */
export interface Obstacle {
  readonly reason: string;
  /**
   * True if the provider doesn't claim what the case tests, so there's nothing to prove. False if the harness can't run
   * it.
   */
  readonly byDesign: boolean;
}

/** Why a case can't run with this harness, if it can't. */
export type Need = (harness: ProviderHarness) => Obstacle | undefined;

export const cutOff: Need = ({ faults }) =>
  faults?.cutOff && faults.restore
    ? undefined
    : { reason: 'the harness cannot cut a provider off (faults.cutOff, faults.restore)', byDesign: false };

export const silence: Need = ({ faults }) =>
  faults?.silence && faults.restore
    ? undefined
    : { reason: 'the harness cannot silence a provider (faults.silence, faults.restore)', byDesign: false };

export const refusal: Need = ({ faults }) =>
  faults?.refuse && faults.restore ? undefined : unclaimed('nothing makes its server refuse it (faults.refuse)');

export const revocation: Need = ({ faults, capabilities }) =>
  faults?.revoke || capabilities.forceRelease
    ? undefined
    : { reason: 'the harness cannot take a lock away (faults.revoke)', byDesign: false };

export const leaseOfItsOwn: Need = ({ capabilities }) =>
  capabilities.lease === 'per-lock' ? undefined : unclaimed('its locks live as long as their session');

export const ownClock: Need = ({ embedded }) =>
  embedded ? unclaimed('its store has no clock but that of the machine') : undefined;

export const fencing: Need = ({ capabilities }) =>
  capabilities.fencing ? undefined : unclaimed('it has no fencing tokens');

export const sharedMode: Need = ({ capabilities }) =>
  capabilities.shared ? undefined : unclaimed('it has no shared locks');

export const records: Need = (harness) => (harness.records ? undefined : unclaimed('it has no records (records)'));

/** The provider doesn't claim what the case tests. */
export function unclaimed(reason: string): Obstacle {
  return { reason, byDesign: true };
}
