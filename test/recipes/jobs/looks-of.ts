import { readRunOptions, type RunTicksOptions } from '../../../lib/recipes/run-once.js';
import type { MissingRunOptions } from '../../../lib/recipes/jobs/missing-runs.js';

export type Looks = Pick<RunTicksOptions, 'catchUp' | 'afterCrash'>;

/** Of the options of a method with ticks. */
export function looksOf({ catchUp, afterCrash }: Looks): MissingRunOptions {
  const { missingRuns } = readRunOptions({ catchUp, afterCrash });
  if (!missingRuns) throw new Error('It has ticks.');
  return missingRuns;
}
