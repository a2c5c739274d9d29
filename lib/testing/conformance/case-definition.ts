import type { ProviderHarness } from './provider-harness.js';
import type { Stage } from './stage.js';

/** One thing that is true of every provider, or of every one that claims it. */
export interface CaseDefinition {
  /** `#5` by the number in the contract list of docs/testing-a-provider.md, `#S5` for the seam. */
  readonly id: string;
  readonly title: string;
  /** What it cannot run without. */
  readonly needs?: readonly Need[];
  /** Looks at the whole process, so nothing else may run beside it. */
  readonly alone?: boolean;
  run(stage: Stage): Promise<void>;
}

/** Says why a case cannot run with this harness, or nothing if it can. */
export type Need = (harness: ProviderHarness) => string | undefined;

export const cutOff: Need = ({ faults }) =>
  faults?.cutOff && faults.restore
    ? undefined
    : 'the harness cannot cut a provider off (faults.cutOff, faults.restore)';

export const revocation: Need = ({ faults, capabilities }) =>
  faults?.revoke || capabilities.forceRelease ? undefined : 'the harness cannot take a lock away (faults.revoke)';

export const leaseOfItsOwn: Need = ({ capabilities }) =>
  capabilities.lease === 'per-lock' ? undefined : 'its locks live as long as their session';

export const fencing: Need = ({ capabilities }) => (capabilities.fencing ? undefined : 'it has no fencing tokens');

export const sharedMode: Need = ({ capabilities }) => (capabilities.shared ? undefined : 'it has no shared locks');
