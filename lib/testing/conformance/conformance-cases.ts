import { randomBytes, randomInt } from 'node:crypto';
import { LockError } from '../../lock/errors.js';
import type { CaseDefinition, Obstacle } from './case-definition.js';
import { capabilityCases } from './cases/capabilities.js';
import { crashCases } from './cases/crashes.js';
import { failureCases } from './cases/failures.js';
import { fencingCases } from './cases/fencing.js';
import { hygieneCases } from './cases/hygiene.js';
import { leaseCases } from './cases/lease.js';
import { lossCases } from './cases/loss.js';
import { mutualExclusionCases } from './cases/mutual-exclusion.js';
import { nameCases } from './cases/names.js';
import { randomSequenceCases } from './cases/random-sequences.js';
import { seamCases } from './cases/seam.js';
import { severalKeysCases } from './cases/several-keys.js';
import { waitingCases } from './cases/waiting.js';
import { TooLate } from './expectations.js';
import type { ProviderHarness } from './provider-harness.js';
import { Stage } from './stage.js';
import { testTime, type TestTime } from './test-time.js';

/** One case of the kit, ready to run against one provider. */
export interface ConformanceCase {
  readonly id: string;
  readonly title: string;
  /** Why it does not run with this harness, if it does not. */
  readonly notRun: Obstacle | undefined;
  /** Nothing else may run in this process at the same time. */
  readonly alone: boolean;
  /** Runs it, with processes and keys of its own. Rejects when the provider does not conform. */
  run(): Promise<void>;
}

const ROUNDS = 5;

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
  ...seamCases,
  ...hygieneCases,
];

/** All cases of the kit as data, for those who run them by other means than `describeLockProvider`. */
export function conformanceCases(harness: ProviderHarness): readonly ConformanceCase[] {
  // Runs that share a backend, also those that were broken off, must not meet.
  const run = randomBytes(5).toString('hex');
  const seed = harness.seed ?? randomInt(2 ** 31);
  return DEFINITIONS.map((definition, index) => ({
    id: definition.id,
    title: definition.title,
    notRun: definition.needs?.map((need) => need(harness)).find((reason) => reason !== undefined),
    alone: definition.alone ?? false,
    run: () => {
      const time = testTime(harness.clock);
      return time.drive(() => playFairly(definition, harness, time, `kit-${run}-${index}`, seed));
    },
  }));
}

/**
 * Plays a case, and again if it was too late while this process stood still or its machine had nothing to spare: that has
 * shown nothing of the provider. Every other failure is one, whatever the machine did.
 */
async function playFairly(
  definition: CaseDefinition,
  harness: ProviderHarness,
  time: TestTime,
  namespace: string,
  seed: number,
): Promise<void> {
  for (let round = 1; ; round += 1) {
    const starvation = time.watch();
    try {
      await play(definition, new Stage(harness, time, `${namespace}-${round}`, seed));
      return;
    } catch (error) {
      const starved = starvation.longest();
      if (!isOfTime(error) || round === ROUNDS || starved < time.slack / 2) throw error;
      const what = `Case ${definition.id} was too late while this machine was busy for ${Math.round(starved)} ms, and is played again`;
      process.emitWarning(`${what}: ${String(error)}`);
    } finally {
      starvation.end();
    }
  }
}

/** Whether it depends on the speed of the machine. */
function isOfTime(error: unknown): boolean {
  return error instanceof TooLate || LockError.is(error) || (error instanceof Error && isOfTime(error.cause));
}

async function play(definition: CaseDefinition, stage: Stage): Promise<void> {
  try {
    await definition.run(stage);
  } catch (error) {
    // The case's own failure says more than what its half-finished processes say when they are stopped.
    await stage.close().catch(() => undefined);
    throw error;
  }
  await stage.close();
}
