import { randomBytes, randomInt } from 'node:crypto';
import type { CaseDefinition, Obstacle } from './case-definition.js';
import { capabilityCases } from './cases/capabilities.js';
import { crashCases } from './cases/crashes.js';
import { failureCases } from './cases/failures.js';
import { fencingCases } from './cases/fencing.js';
import { hygieneCases } from './cases/hygiene.js';
import { leaseCases } from './cases/lease.js';
import { limitCases } from './cases/limits.js';
import { listingCases } from './cases/listing.js';
import { lossCases } from './cases/loss.js';
import { mutualExclusionCases } from './cases/mutual-exclusion.js';
import { nameCases } from './cases/names.js';
import { randomSequenceCases } from './cases/random-sequences.js';
import { recordCases } from './cases/records.js';
import { seamCases } from './cases/seam.js';
import { severalKeysCases } from './cases/several-keys.js';
import { waitingCases } from './cases/waiting.js';
import type { ProviderHarness } from './provider-harness.js';
import { Stage } from './stage.js';
import { testTime } from './test-time.js';

/** One case of the kit, ready to run against one provider. */
export interface ConformanceCase {
  readonly id: string;
  readonly title: string;
  /** The reason it does not run with this harness, if any. */
  readonly notRun: Obstacle | undefined;
  /** Whether the case must run alone in this process. */
  readonly alone: boolean;
  /** Runs the case with its own processes and keys. Rejects if the provider does not conform. */
  run(): Promise<void>;
}

const DEFINITIONS: readonly CaseDefinition[] = [
  ...mutualExclusionCases,
  ...randomSequenceCases,
  ...waitingCases,
  ...leaseCases,
  ...lossCases,
  ...fencingCases,
  ...crashCases,
  ...nameCases,
  ...severalKeysCases,
  ...failureCases,
  ...capabilityCases,
  ...limitCases,
  ...listingCases,
  ...recordCases,
  ...seamCases,
  ...hygieneCases,
];

/** All of the kit's cases as data, for running them without `describeLockProvider`. */
export function conformanceCases(harness: ProviderHarness): readonly ConformanceCase[] {
  // Runs that share a backend, including aborted ones, must not collide.
  const run = randomBytes(5).toString('hex');
  const seed = harness.seed ?? randomInt(2 ** 31);
  return DEFINITIONS.map((definition, index) => ({
    id: definition.id,
    title: definition.title,
    notRun: definition.needs?.map((need) => need(harness)).find((reason) => reason !== undefined),
    alone: definition.alone ?? false,
    run: () => {
      const time = testTime(harness.clock);
      return time.drive(() => play(definition, new Stage(harness, time, `kit-${run}-${index}`, seed)));
    },
  }));
}

async function play(definition: CaseDefinition, stage: Stage): Promise<void> {
  try {
    await definition.run(stage);
  } catch (error) {
    // The case's own failure explains more than the errors from stopping its half-finished processes.
    await stage.close().catch(() => undefined);
    throw error;
  }
  await stage.close();
}
