import { median, quantile } from './measure.mjs';

/**
 * One thing that was measured, for several candidates:
 *
 *   what      a title
 *   unit      of the values
 *   better    'more' or 'less'
 *   rounds    by candidate, a value a round; with `along`, such a list for each of its points
 *   ours      the candidate that this is all about
 *   base      the candidate that the others are divided by, round by round
 *   bar       { atLeast | atMost, of }: what ours has to reach. Of `base`, of the `best` of the others, or by itself.
 *   notes     by candidate, what the number does not say
 *   along     { name, points }: what grows
 *
 * What follows from the values is computed here, for the terminal and for the page alike.
 */

/** By candidate: the median, the quartiles and the ratio to the base. */
export function summary(table) {
  return Object.entries(table.rounds).map(([name, values]) => ({
    name,
    median: median(values),
    low: quantile(values, 0.25),
    high: quantile(values, 0.75),
    rounds: values.length,
    ratio: table.base && ratio(values, table.rounds[table.base]),
    note: table.notes?.[name] ?? '',
  }));
}

/** Whether ours reaches the bar: `{ isMet, bar, measured }`, the latter two in words. */
export function verdict(table) {
  const { bar, ours, base, unit } = table;
  if (bar === undefined) return undefined;
  const measured = measuredOf(table);
  const [isMet, limit] =
    bar.atLeast === undefined
      ? [measured <= bar.atMost, `at most ${bar.atMost}`]
      : [measured >= bar.atLeast, `at least ${bar.atLeast}`];
  const of = bar.of === 'base' ? `× ${base}` : bar.of === 'best' ? `× the best of the others (${best(table)})` : unit;
  return { isMet, bar: `${limit} ${of}`, measured: number(measured), ours };
}

/** As many digits as say something. */
export function number(value) {
  if (value >= 1_000) return Math.round(value).toLocaleString('en');
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function measuredOf(table) {
  const { bar, better, ours, rounds, base } = table;
  if (bar.of === 'base') return ratio(rounds[ours], rounds[base]);
  const own = median(rounds[ours]);
  if (bar.of !== 'best') return own;
  const other = median(rounds[best(table)]);
  return better === 'more' ? own / other : other / own;
}

function best({ rounds, ours, base, better }) {
  const others = Object.keys(rounds).filter((name) => name !== ours && name !== base);
  const sign = better === 'more' ? 1 : -1;
  return others.reduce((a, b) => (sign * (median(rounds[b]) - median(rounds[a])) > 0 ? b : a));
}

function ratio(values, base) {
  return median(values.slice(0, base.length).map((value, round) => value / base[round]));
}
