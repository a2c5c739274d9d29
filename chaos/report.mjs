// The results of a run, as data and as Markdown tables. The terminal and the pages show the same tables.
import { markdownTable } from '../bench/markdown.mjs';
import { RULES } from './judge/checker.mjs';

// Fewer sections prove nothing.
const ENOUGH_SECTIONS = 50;

/**
 * A provider must not break any rule. A control must break all rules that it is known to break. Both need enough
 * sections.
 */
export function isAsExpected({ subject, verdict }) {
  const broken = new Set(verdict.violations.map(({ rule }) => rule));
  const expected = subject.control ? subject.control.every((rule) => broken.has(rule)) : broken.size === 0;
  return hasEnough(verdict) && expected;
}

/** Whether enough sections were entered for a verdict. */
export const hasEnough = ({ counts }) => counts.sections >= ENOUGH_SECTIONS;

/** A verdict's counts: by fault, in total, and violations by rule. */
export function summarize(verdict) {
  const byName = new Map();
  for (const fault of verdict.faults) byName.set(fault.name, [...(byName.get(fault.name) ?? []), fault]);
  const faults = [...byName].map(([fault, times]) => {
    const sum = (field) => times.reduce((total, each) => total + each[field], 0);
    return {
      fault,
      times: times.length,
      sections: sum('sections'),
      overstays: sum('overstays'),
      documented: verdict.excused.filter(({ under }) => under === fault).length,
      refused: sum('refused'),
      violations: sum('violations'),
      ...recoveryOf(times),
    };
  });
  const { sections, overstays, refused } = verdict.counts;
  const [documented, violations] = [verdict.excused.length, verdict.violations.length];
  const byRule = {};
  for (const { rule } of verdict.violations) byRule[rule] = (byRule[rule] ?? 0) + 1;
  const total = { faults: verdict.faults.length, sections, overstays, documented, refused, violations };
  return {
    total,
    byRule,
    ...(verdict.ticks && { ticks: verdict.ticks }),
    ...(verdict.cycles && { cycles: verdict.cycles }),
    faults,
  };
}

/**
 * Time in ms from the end of a fault until every key has been entered again: the median and the maximum, if any is
 * known.
 */
function recoveryOf(times) {
  const recoveries = times.map(({ recovery }) => recovery).filter((recovery) => recovery !== undefined);
  if (recoveries.length === 0) return {};
  const sorted = recoveries.map(Math.round).sort((a, b) => a - b);
  return { recoveryMedian: sorted[Math.floor(sorted.length / 2)], recoveryMax: sorted.at(-1) };
}

/** One row for each fault, and one for the total. */
export function faultTable({ total, faults }) {
  const counts = ({ sections, overstays, documented, refused, violations }) => [
    sections,
    overstays,
    documented,
    refused,
    violations,
  ];
  return markdownTable(
    [
      'fault',
      'times',
      'sections',
      'overstays',
      'documented exceptions',
      'stale acts refused',
      'violations',
      'recovery ms, median / max',
    ],
    [
      ...faults.map((each) => [
        each.fault,
        each.times,
        ...counts(each),
        each.recoveryMax === undefined ? '–' : `${each.recoveryMedian} / ${each.recoveryMax}`,
      ]),
      ['**all**', total.faults, ...counts(total), ''],
    ],
  );
}

/** The conditions chosen at random for a run's servers. */
export function conditionLines({ conditions = {} }) {
  return Object.entries(conditions).map(([name, value]) => `With ${name} = '${value}'`);
}

/** How many ticks were judged. */
export function tickLines({ ticks }) {
  return ticks
    ? [`${ticks.due} ticks were due, and ${ticks.excused} of them did not start because of a run or an outage`]
    : [];
}

/** How many cycles were judged. */
export function cycleLines({ cycles }) {
  if (!cycles) return [];
  const { refused, calm, ended, together, busy } = cycles;
  const all = `${refused} callers were refused because of a cycle, and ${busy} waited in vain`;
  if (calm === 0) return [all];
  return [
    all,
    `No fault affected ${calm} of these cycles: they lasted for at least ${together} ms and ended at most ${ended} ms before the refusal`,
  ];
}

/** When the servers had different data: a fault of the servers that explains violations but excuses none. */
export function disagreementLines({ disagreements }) {
  return disagreements.map(
    ({ at, disagreement: [first, ...others] }) =>
      `The servers disagreed in the quiet phase before ${Math.round(at)} ms: ${first}${others.length > 0 ? `, and ${others.length} more` : ''}`,
  );
}

/** Each broken rule once, with its first case. */
export function violationLines({ violations }) {
  const byRule = new Map();
  for (const violation of violations) {
    byRule.set(violation.rule, [...(byRule.get(violation.rule) ?? []), violation]);
  }
  return [...byRule].map(([rule, all]) => {
    const [first] = all;
    const { id, text } = RULES[rule];
    const where = first.op === undefined ? '' : ` ${first.op} on "${first.key}"`;
    return `${all.length} × ${id}: ${text}. First:${where} ${first.what} (at ${Math.round(first.at)} ms, under: ${first.under})`;
  });
}

/** Formats a soak's measurements: `rows` of `{ what, early, late, digits, state }`. */
export function soakTable({ rows }) {
  const text = (value, digits) => value?.toFixed(digits) ?? '';
  return markdownTable(
    ['', 'first third', 'last third', ''],
    rows.map(({ what, early, late, digits, state }) => [what, text(early, digits), text(late, digits), state]),
  );
}
