import { BASELINE } from './builds.mjs';
import { median, quantile } from './measure.mjs';

/**
 * A table holds one measurement of several candidates:
 *
 *   what      a title
 *   unit      the unit of the values
 *   better    'more' or 'less'
 *   rounds    by candidate, one value for each round; with `along`, one such list for each of its points
 *   ours      this library's candidate
 *   base      the candidate by which the others are divided, round by round
 *   bar       { atLeast | atMost, of }: the target for ours. Relative to `base`, to the `best` other library, or
 *   absolute
 *   peers     the other libraries that count for the `best`; default: all
 *   notes     by candidate, a remark on its number
 *   along     { name, points }: the quantity that grows
 *
 * The terminal and the pages show the same values, which are computed here.
 */

/** By candidate: the median, the quartiles, and the ratio to the base. */
export function summary(table) {
  return Object.entries(table.rounds).map(([name, values]) => ({
    name,
    median: median(values),
    low: quantile(values, 0.25),
    high: quantile(values, 0.75),
    rounds: values.length,
    ratio: table.base && median(ratios(values, table.rounds[table.base])),
    note: table.notes?.[name] ?? '',
  }));
}

/**
 * Whether ours reaches the bar, in words: `{ word, bar, measured }`. If the bar lies between the quartiles, the result
 * is undecided. `undefined` if there is no bar, or no other library to compare with.
 */
export function verdict(table) {
  const { bar, base, unit } = table;
  if (bar === undefined || lacksPeers(table)) return undefined;
  if (table.peers?.length === 0) {
    return { word: 'met', bar: 'ahead of every other library that is fair', measured: 'no other is' };
  }
  const measured = measuredOf(table);
  const [low, high] = [quantile(measured, 0.25), quantile(measured, 0.75)];
  const [[good, bad], limit] =
    bar.atLeast === undefined
      ? [[high <= bar.atMost, low > bar.atMost], `≤ ${bar.atMost}`]
      : [[low >= bar.atLeast, high < bar.atLeast], `≥ ${bar.atLeast}`];
  const of = bar.of === 'base' ? `× ${base}` : bar.of === 'best' ? `× ${best(table)}, the best other` : unit;
  const spread = measured.length > 1 ? ` (${number(low)} – ${number(high)})` : '';
  return {
    word: good ? 'met' : bad ? 'missed' : 'undecided',
    bar: `${limit} ${of}`,
    measured: number(median(measured)) + spread,
  };
}

/** Whether the bar is relative to other libraries, but none of them was measured. */
export function lacksPeers(table) {
  return table.bar?.of === 'best' && table.peers?.length !== 0 && best(table) === undefined;
}

/** Formats a value with its significant digits. */
export function number(value) {
  if (value >= 1_000) return Math.round(value).toLocaleString('en');
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** What the bar limits: one value for each round. */
function measuredOf(table) {
  const { bar, better, ours, rounds, base } = table;
  if (bar.of === 'base') return ratios(rounds[ours], rounds[base]);
  if (bar.of !== 'best') return rounds[ours];
  const other = rounds[best(table)];
  return better === 'more' ? ratios(rounds[ours], other) : ratios(other, rounds[ours]);
}

function best({ rounds, ours, base, better, peers }) {
  const others = (peers ?? Object.keys(rounds)).filter((name) => ![ours, base, BASELINE].includes(name));
  const sign = better === 'more' ? 1 : -1;
  return others.toSorted((a, b) => sign * (median(rounds[b]) - median(rounds[a])))[0];
}

function ratios(values, base) {
  return values.slice(0, base.length).map((value, round) => value / base[round]);
}
