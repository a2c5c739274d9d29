// The measurements that the page compares with other libraries, and the conclusions from them.
import { BASELINE, OURS } from './builds.mjs';
import { median, quantile } from './measure.mjs';
import { lacking } from './promises.mjs';

/** The lower bounds for this library: they send the same commands and do nothing else. */
const FLOORS = ['the same scripts, bare ioredis', 'raw mysql2', 'raw pg'];

/** By group: the title and unit of a table, and its name on the page. A group without saved results has no rows. */
const COMPARED = {
  redis: [
    [
      'One caller, beside the same two scripts sent by bare ioredis',
      'cycles a second',
      'Redis: one caller against its own scripts alone, cycles/s',
    ],
    ['One caller, acquire + release', 'cycles a second', 'Redis: one caller, cycles/s'],
    ["One caller, release: 'sent'", 'cycles a second', "Redis: one caller, release: 'sent', cycles/s"],
    ['64 callers on 64 keys', 'cycles a second', 'Redis: 64 callers on 64 keys, cycles/s'],
    [
      '16 callers at once on one key, until each has held it',
      'ms',
      'Redis: 16 callers at once on one key, ms until all have held it',
    ],
    [
      '16 waiters looping on one key in one process: speed',
      'acquisitions a second',
      'Redis: 16 loop on one key in one process, acquisitions/s',
    ],
    [
      '16 waiters looping on one key in one process: longest wait',
      'ms',
      'Redis: 16 loop on one key in one process, longest wait, ms',
    ],
    [
      '16 waiters looping on one key in two processes: speed',
      'acquisitions a second',
      'Redis: 16 loop on one key in two processes, acquisitions/s',
    ],
    [
      '16 waiters looping on one key in two processes: longest wait',
      'ms',
      'Redis: 16 loop on one key in two processes, longest wait, ms',
    ],
  ],
  'redis-scale': [
    ['100 idle waiters on one key in one process', 'commands a second', 'Redis: 100 callers wait, commands/s'],
    [
      '10,000 locks held with leases of 10 s and renewed',
      '% of one core',
      'Redis: 10,000 locks held and renewed, % of a core',
    ],
    [
      '10,000 locks held with leases of 10 s and renewed',
      'renewals a second for 1 % of a core',
      'Redis: 10,000 locks held, renewals/s for 1 % of a core',
    ],
  ],
  limits: [
    ['One caller of a limit of 4, acquire + release', 'cycles a second', 'Redis: a limit of 4, one caller, cycles/s'],
    [
      'One caller of a limit of 4, beside the same two scripts sent by bare ioredis',
      'cycles a second',
      'Redis: a limit of 4, one caller against its own scripts alone, cycles/s',
    ],
    [
      '16 waiters looping on a limit of 4 in one process: speed',
      'acquisitions a second',
      'Redis: a limit of 4, 16 loop, acquisitions/s',
    ],
    [
      '16 waiters looping on a limit of 4 in one process: longest wait',
      'ms',
      'Redis: a limit of 4, 16 loop, longest wait, ms',
    ],
  ],
  redlock: [3, 5].flatMap((nodes) => [
    [
      `${nodes} nodes: one caller, acquire + release`,
      'cycles a second',
      `Redlock, ${nodes} nodes: one caller, cycles/s`,
    ],
    [
      `${nodes} nodes: one caller, beside the same scripts sent by bare ioredis`,
      'cycles a second',
      `Redlock, ${nodes} nodes: one caller against its own scripts alone, cycles/s`,
    ],
    [
      `${nodes} nodes: 64 callers on 64 keys`,
      'cycles a second',
      `Redlock, ${nodes} nodes: 64 callers on 64 keys, cycles/s`,
    ],
    [
      `${nodes} nodes: 16 callers at once on one key, until each has held it`,
      'ms',
      `Redlock, ${nodes} nodes: 16 callers at once on one key, ms`,
    ],
    [
      `${nodes} nodes: one node hung, until a free lock is acquired`,
      'ms',
      `Redlock, ${nodes} nodes: one node hung, ms until acquired`,
    ],
    [
      `${nodes} nodes: one node hung, beside the same scripts sent by bare ioredis`,
      'ms',
      `Redlock, ${nodes} nodes: one node hung, against its own scripts alone, ms until acquired`,
    ],
  ]),
  ...Object.fromEntries(
    [
      ['mariadb', 'MariaDB'],
      ['postgres', 'Postgres'],
    ].map(([group, name]) => [
      group,
      ['Row', 'Advisory', 'Version'].map((kind) => [
        `${kind} lock, one caller`,
        'cycles a second',
        `${name}: ${kind.toLowerCase()} lock, one caller, cycles/s`,
      ]),
    ]),
  ),
  zookeeper: [
    ['One caller, acquire + release, writes not synced', 'cycles a second', 'ZooKeeper: one caller, cycles/s'],
    ['64 callers on 64 keys, writes not synced', 'cycles a second', 'ZooKeeper: 64 callers on 64 keys, cycles/s'],
  ],
};

/**
 * One row for each comparison with saved results, in the order of the page.
 *
 * @param newer the same groups on a newer version of Node
 */
export function comparisons(groups, newer = []) {
  return Object.entries(COMPARED).flatMap(([name, wanted]) => {
    const kept = groups.find(({ group }) => group === name);
    if (!kept) return [];
    return wanted.flatMap(([what, unit, label]) => {
      const table = tableOf(groups, name, what, unit);
      const row = table && comparison(table, name);
      if (row) return [{ label, ...row, newer: comparison(tableOf(newer, name, what, unit), name) }];
      console.warn(
        `The page has no row "${label}": group ${name} has no table "${what}" in ${unit} with another library.`,
      );
      return [];
    });
  });
}

function tableOf(groups, name, what, unit) {
  return groups.find(({ group }) => group === name)?.tables.find((each) => each.what === what && each.unit === unit);
}

/**
 * Compares this library with the best other one, round by round, so that other load on the machine affects both.
 * `undefined` if there is no other.
 */
function comparison(table, group) {
  const other = table && bestOther(table);
  if (other === undefined) return undefined;
  const { ours, rounds, better } = table;
  const ratios = rounds[ours]
    .slice(0, rounds[other].length)
    .map((value, round) => (better === 'more' ? value / rounds[other][round] : rounds[other][round] / value));
  const [low, ratio, high] = [0.25, 0.5, 0.75].map((share) => quantile(ratios, share));
  // As far as the quartiles can tell.
  const judged = low > 1 ? 'ahead' : high < 1 ? 'behind' : 'level';
  const result = FLOORS.includes(other) ? 'floor' : judged;
  // A ratio to zero doesn't exist.
  const hasRatio = ratio > 0 && Number.isFinite(ratio);
  const [best, own] = [other, ours].map((name) => median(rounds[name]));
  return { ours: own, best, other, lacks: lacking(group, other), result, ...(hasRatio && { ratio, low, high }) };
}

/**
 * Excludes this library with other settings, and libraries whose callers gave up, since these didn't do the work. The
 * raw client counts only if there is no library.
 */
function bestOther({ ours, base, rounds, better, notes = {} }) {
  const libraries = Object.keys(rounds).filter(
    (name) => ![ours, base, BASELINE].includes(name) && !name.startsWith(OURS) && !/^raw\b/.test(name),
  );
  const sign = better === 'more' ? -1 : 1;
  const able = libraries.filter((name) => !isGivenUp(notes[name] ?? ''));
  const [best] = able.toSorted((a, b) => sign * (median(rounds[a]) - median(rounds[b])));
  return libraries.length > 0 ? best : base;
}

export function isGivenUp(note) {
  return /gave up|not acquired/.test(note);
}

/** Four sentences, derived from the rows alone. */
export function conclusion(rows) {
  const [ahead, level, behind] = ['ahead', 'level', 'behind'].map((wanted) =>
    rows.filter(({ result }) => result === wanted),
  );
  const farthest = (list) => list.filter(({ ratio }) => ratio).toSorted((a, b) => b.ratio - a.ratio);
  const lacking = behind.filter(({ lacks }) => lacks.length > 0).length;
  return [
    `In ${ahead.length + level.length + behind.length} comparisons with the best other in the same run, this package is ahead in ${ahead.length}, level in ${level.length}, and behind in ${behind.length}.`,
    `In ${lacking === behind.length ? 'all' : `${lacking} of the`} ${behind.length}, the faster one lacks a feature this package's locks have.`,
    farAway('ahead', 'leads', farthest(ahead)),
    farAway('behind', 'deficits', farthest(behind).reverse()),
  ].join(' ');
}

function farAway(word, plural, rows) {
  if (rows.length === 0) return `It's never ${word}.`;
  const names = rows.slice(0, 3).map(({ label, ratio, other }) => {
    // "Redis: one caller, cycles/s" -> "Redis, one caller"
    return `${label.replace(/, [^,]+$/, '').replace(':', ',')} (${times(ratio)} × ${other})`;
  });
  return `Its biggest ${plural}: ${names.join('; ')}.`;
}

export function times(ratio) {
  return ratio >= 10 ? ratio.toFixed(0) : ratio.toFixed(2);
}
