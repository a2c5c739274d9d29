// Writes the results in chaos/results into docs/trust.md, docs/reliability.md and maintainers/lab-notes/chaos.md. Don't
// edit the text between their markers.
import { join } from 'node:path';
import { compact, drawPage, markdownTable } from '../bench/markdown.mjs';
import { root } from '../scripts/ensure-installed.mjs';
import { RULES } from './judge/checker.mjs';
import { keptOnOtherServers, keptResults } from './results.mjs';
import { subjects } from './subjects/index.mjs';

export const VERDICT = join(root, 'docs/trust.md');
export const RELIABILITY = join(root, 'docs/reliability.md');
export const LAB_NOTES = join(root, 'maintainers/lab-notes/chaos.md');

/**
 * Each promise, the judge's rules that detect a breach of it, and the faults that target it. Without a list, all faults
 * do.
 */
const PROMISES = [
  { promise: 'One holder, or as many as the limit', rules: ['overlap', 'limit'], attack: 'all faults' },
  {
    promise: 'You know when you lose a lock',
    rules: ['late', 'signal'],
    attack: 'paused processes, blocked event loops, silent connections',
    faults: ['worker paused', 'event loop blocked', 'connections half-open', 'one server half-open', 'replies lost'],
  },
  {
    promise: 'Tokens grow, and reject late writes',
    rules: ['token', 'stale'],
    attack: 'lost data, stepped clocks, failovers',
    faults: [
      ...['server restarted', 'server restarted empty', 'FLUSHALL', 'server clock stepped', 'client clock stepped'],
      ...['failover', 'graceful switchover', 'cut-off standby promoted', 'leader killed', 'leader cut off'],
    ],
  },
  {
    promise: 'Every lock is released, every waiter served',
    rules: ['stuck', 'leak', 'sessions'],
    attack: 'killed processes, broken connections',
    faults: [
      ...['worker killed', 'connections reset', 'clients reset', 'connections forgotten', 'CLIENT KILL'],
      ...['KILL CONNECTION', 'server paused in a handoff', 'many waiting keys'],
    ],
  },
  {
    promise: 'Busy, lost, and unavailable are different errors',
    rules: ['release', 'unexpected'],
    attack: 'servers that are down, paused, or unreachable',
    faults: [
      ...['server paused', 'server down', 'server flapping', 'all servers paused', 'one server refused'],
      ...['connections refused', 'requests lost', 'network delayed', 'CLIENT PAUSE'],
    ],
  },
];

/** The generated parts of each page, by the names of their markers. */
export function partsOfPages() {
  const [results, soaks] = [keptResults('faults'), keptResults('soak')].map(inOrder);
  const isControl = ({ subject }) => subjects[subject]?.control !== undefined;
  const providers = results.filter((result) => !isControl(result));
  const all = [...providers, ...keptOnOtherServers()];
  return {
    [VERDICT]: { attacks: compact(attackTable(all)), run: summary(all, results) },
    [RELIABILITY]: {
      results: compact(resultTable(providers)),
      servers: compact(serverTable(keptOnOtherServers())),
      excused: excuseList(providers),
      controls: compact(controlTable(results.filter(isControl))),
    },
    [LAB_NOTES]: {
      totals: compact(totalTable(providers)),
      faults: compact(faultTable(providers)),
      soaks: compact(soakTable(soaks)),
    },
  };
}

export function drawPages() {
  for (const [page, parts] of Object.entries(partsOfPages())) drawPage(page, parts);
}

function inOrder(results) {
  return Object.keys(subjects).flatMap((name) => results.get(name) ?? []);
}

function attackTable(results) {
  return markdownTable(
    ['promise', 'attacked with', 'times', 'times broken'],
    PROMISES.map(({ promise, rules, attack, faults: names }) => {
      const aimed = results.flatMap(({ faults }) => faults).filter(({ fault }) => names?.includes(fault) ?? true);
      const broken = results.flatMap(({ byRule }) => rules.map((rule) => byRule[rule] ?? 0));
      return [promise, attack, total(aimed, 'times'), broken.reduce((sum, each) => sum + each, 0)];
    }),
  );
}

/** Summarizes what the kept runs found, and lists subjects without a result. */
function summary(results, withControls) {
  const [faults, sections, violations, overlaps, refused] = [
    'faults',
    'sections',
    'violations',
    'documented',
    'refused',
  ]
    .map((field) =>
      total(
        results.map((result) => result.total),
        field,
      ),
    )
    .map((number) => number.toLocaleString('en'));
  const byDate = [...results].sort((one, other) => one.date.localeCompare(other.date));
  const [first, last] = [byDate[0], byDate.at(-1)].map(({ date, commit }) => `${date} (commit ${commit})`);
  const kept = new Set(withControls.map(({ subject }) => subject));
  const without = Object.keys(subjects).filter((name) => !kept.has(name));
  return [
    `- **Runs:** ${results.length}, ${Math.round(total(results, 'minutes'))} minutes in total, from ${first} to ${last}.`,
    `- **Faults:** ${faults}, during ${sections} critical sections.`,
    `- **Broken promises:** ${violations}.`,
    `- **Overlaps under the faults listed below:** ${overlaps}. The judge recorded them but does not count them as violations.`,
    `- **Late writes that a fencing token rejected:** ${refused}.`,
    ...(without.length > 0 ? [`- **No result yet:** ${without.join(', ')}.`] : []),
  ].join('\n');
}

function total(all, field) {
  return all.reduce((sum, each) => sum + each[field], 0);
}

function resultTable(results) {
  return markdownTable(
    ['subject', 'faults', 'sections', 'violations', 'excused acts', 'minutes', 'commit'],
    results.map(({ subject, total, minutes, commit }) => {
      return [subject, total.faults, total.sections, total.violations, total.documented, minutes, commit];
    }),
  );
}

function serverTable(results) {
  return markdownTable(
    ['subject', 'server', 'faults', 'sections', 'violations', 'excused acts', 'minutes', 'commit'],
    results.map(({ subject, server, total, minutes, commit }) => {
      return [subject, server, total.faults, total.sections, total.violations, total.documented, minutes, commit];
    }),
  );
}

/** Each reason for excusing acts, and how many it excused. The lab notes list the faults. */
function excuseList(results) {
  const byExcuse = new Map();
  for (const { subject, total } of results.filter(({ total }) => total.documented > 0)) {
    const { excuse } = subjects[subject];
    byExcuse.set(excuse, [...(byExcuse.get(excuse) ?? []), `${subject} ${total.documented}`]);
  }
  return Array.from(byExcuse, ([excuse, acts]) => `- ${excuse}: ${acts.join(', ')}`).join('\n');
}

function controlTable(results) {
  return markdownTable(
    ['control', 'faults', 'sections', 'violations', 'minutes', 'commit'],
    results.map(({ subject, total, byRule, minutes, commit }) => {
      const broken = Object.entries(byRule).map(([rule, count]) => `${RULES[rule].id.split(',')[0]}: ${count}`);
      return [subject, total.faults, total.sections, broken.join('; '), minutes, commit];
    }),
  );
}

function totalTable(results) {
  return markdownTable(
    ['subject', 'seed', 'overstays', 'stale acts refused', 'slowest recovery, ms'],
    results.map(({ title, seed, total, faults }) => {
      const slowest = Math.max(...faults.map(({ recoveryMax = 0 }) => recoveryMax));
      return [title, seed, total.overstays, total.refused, slowest];
    }),
  );
}

/** One row for each fault, across all subjects. chaos/results has the numbers for each subject. */
function faultTable(results) {
  const all = results.flatMap(({ subject, faults }) => faults.map((each) => ({ ...each, subject })));
  const rows = [...new Set(all.map(({ fault }) => fault))].sort().map((name) => {
    const those = all.filter(({ fault }) => fault === name);
    const sum = (field) => those.reduce((total, each) => total + each[field], 0);
    const slowest = those.reduce((one, other) => ((other.recoveryMax ?? 0) > (one.recoveryMax ?? 0) ? other : one));
    const recovery = slowest.recoveryMax === undefined ? '–' : `${slowest.recoveryMax} (${slowest.subject})`;
    return [name, those.length, ...['times', 'sections', 'documented', 'refused', 'violations'].map(sum), recovery];
  });
  return markdownTable(
    [
      ...['fault', 'subjects', 'times', 'sections', 'excused acts', 'stale acts refused', 'violations'],
      'slowest recovery, ms',
    ],
    rows,
  );
}

function soakTable(soaks) {
  return markdownTable(
    ['subject', 'minutes', 'sections', 'mean of the first third → of the last'],
    soaks.map(({ title, minutes, sections, rows }) => {
      const text = ({ what, early, late, digits, state }) => {
        const values = [early, late].filter((value) => value !== undefined && value !== null);
        return `${what} ${values.map((value) => value.toFixed(digits)).join(' → ')}${state === 'flat' ? '' : ` (${state})`}`;
      };
      return [title, minutes, sections, rows.map(text).join('; ')];
    }),
    'text',
  );
}

if (import.meta.filename === process.argv[1]) drawPages();
