import { OURS } from './builds.mjs';
import { report, reportAgainstBaseline } from './results.mjs';

/**
 * Reports the results of `loopRounds` for waiters looping on one key: speed, also compared with the baseline, fairness,
 * and the longest wait.
 *
 * @param more `overBaseline`: the bar of the speed relative to the baseline; `speed`, `fairness` and `longest`: more
 * fields of these tables
 */
export function reportLoops(what, { speed, fairness, longest }, more = {}) {
  const speeds = {
    what: `${what}: speed`,
    unit: 'acquisitions a second',
    better: 'more',
    ours: OURS,
    ...more.speed,
    rounds: speed,
  };
  report(speeds);
  reportAgainstBaseline(speeds, more.overBaseline);
  report({
    what: `${what}: fairness`,
    unit: 'fewest turns / most turns',
    better: 'more',
    ours: OURS,
    ...more.fairness,
    rounds: fairness,
  });
  report({ what: `${what}: longest wait`, unit: 'ms', better: 'less', ours: OURS, ...more.longest, rounds: longest });
}
