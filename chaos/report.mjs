import { RULES } from './judge/checker.mjs';

/** One line for each fault, and one for all, as a table of Markdown. */
export function table({ verdict, subject }) {
  const byName = Map.groupBy?.(verdict.faults, ({ nemesis }) => nemesis) ?? grouped(verdict.faults);
  const rows = [...byName].map(([name, faults]) => {
    const sum = (field) => faults.reduce((total, fault) => total + fault[field], 0);
    const recoveries = faults
      .filter(({ recovery }) => recovery !== undefined)
      .map(({ recovery }) => Math.round(recovery));
    const excused = verdict.excused.filter(({ under }) => under === name).length;
    return [
      name,
      faults.length,
      sum('sections'),
      sum('overstays'),
      excused,
      sum('refused'),
      sum('violations'),
      middleAndLargest(recoveries),
    ];
  });
  const head = [
    'fault',
    'times',
    'sections',
    'overstays',
    'documented overlaps',
    'stale acts refused',
    'violations',
    'recovery ms, median / max',
  ];
  const { sections, overstays, refused } = verdict.counts;
  const all = [
    '**all**',
    verdict.faults.length,
    sections,
    overstays,
    verdict.excused.length,
    refused,
    verdict.violations.length,
    '',
  ];
  return [
    `### ${subject.title}`,
    '',
    line(head),
    line(head.map((_, index) => (index === 0 ? '---' : '--:'))),
    ...rows.map(line),
    line(all),
  ].join('\n');
}

// Fewer sections say nothing.
const ENOUGH = 50;

/** Our providers break no rule, a control all those that it is known to break; and neither for want of trying. */
export function isAsExpected({ subject, verdict }) {
  const broken = new Set(verdict.violations.map(({ rule }) => rule));
  const expected = subject.control ? subject.control.every((rule) => broken.has(rule)) : broken.size === 0;
  return verdict.counts.sections >= ENOUGH && expected;
}

/** What was found, each rule once with its first case. */
export function findings({ verdict }) {
  const byRule = new Map();
  for (const violation of verdict.violations)
    byRule.set(violation.rule, [...(byRule.get(violation.rule) ?? []), violation]);
  return [...byRule].map(([rule, [first, ...more]]) => {
    const where = first.op === undefined ? '' : ` ${first.op} on "${first.key}"`;
    return `${more.length + 1} × ${RULES[rule]}. First:${where} ${first.what} (at ${Math.round(first.at)} ms, under: ${first.under})`;
  });
}

const line = (cells) => `| ${cells.join(' | ')} |`;

function middleAndLargest(values) {
  if (values.length === 0) return '–';
  const sorted = values.sort((a, b) => a - b);
  return `${sorted[Math.floor(sorted.length / 2)]} / ${sorted.at(-1)}`;
}

function grouped(faults) {
  const groups = new Map();
  for (const fault of faults) groups.set(fault.nemesis, [...(groups.get(fault.nemesis) ?? []), fault]);
  return groups;
}
