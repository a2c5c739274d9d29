import { readRunOptions, type RunTicksOptions } from '../../../lib/recipes/run-once.js';
import type { Looks as CheckedLooks } from '../../../lib/recipes/jobs/missing-runs.js';

export type Looks = Pick<RunTicksOptions, 'catchUp' | 'afterCrash'>;

/** Of the options of a method with ticks. */
export function looksOf({ catchUp, afterCrash }: Looks): CheckedLooks {
  const { looks } = readRunOptions({ catchUp, afterCrash });
  if (!looks) throw new Error('It has ticks.');
  return looks;
}
