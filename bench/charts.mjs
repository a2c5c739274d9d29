// The benchmark charts: dots with quartiles. They aren't bars, because a logarithmic axis has no zero for a bar to
// start from.
import { svgOf } from '../scripts/charts/svg.mjs';

const OURS = '#d9480f';
const OTHERS = '#495057';
const INK = '#1f2328';
const RESULTS = { ahead: '#2b8a3e', level: '#868e96', behind: '#c92a2a' };
const ROW = { step: 22 };
// If the largest value is this many times the smallest, small values are indistinguishable on a linear axis.
const LOGARITHMIC_FROM = 30;

/** By what factor this library is better than the best other one, for each comparison: `rows` of comparison.mjs. */
export function ratioChart(rows, { title, subtitle }) {
  const shown = rows.filter(({ ratio, result }) => ratio && RESULTS[result]);
  const x = logarithmic(
    'times the best other',
    shown.flatMap(({ low, high }) => [low, high]),
    [1, 2, 5],
  );
  const y = { field: 'label', type: 'nominal', sort: null, axis: { title: null, grid: true } };
  const color = {
    field: 'result',
    type: 'nominal',
    scale: { domain: Object.keys(RESULTS), range: Object.values(RESULTS) },
    legend: { title: 'this package is', orient: 'top' },
  };
  return svgOf({
    title: { text: title, subtitle },
    width: 360,
    height: ROW,
    data: { values: shown },
    layer: [
      {
        data: { values: [{}] },
        mark: { type: 'rule', strokeWidth: 1.5, color: INK },
        encoding: { x: { datum: 1, type: 'quantitative' } },
      },
      {
        mark: { type: 'rule', strokeWidth: 2 },
        encoding: { x: { field: 'low', ...x }, x2: { field: 'high' }, y, color },
      },
      {
        mark: { type: 'point', filled: true, size: 70, opacity: 1 },
        encoding: { x: { field: 'ratio', ...x }, y, color },
      },
    ],
  });
}

/**
 * One panel for each quantity, with one dot for each library, in the order of the first panel: `{ unit, lines }`, where
 * a line is `{ name, median, low, high, text, isOurs, note }`. An open dot has a note: its callers gave up, so its
 * number isn't comparable.
 */
export function dotChart(panels, { title, subtitle }) {
  const names = panels[0].lines.map(({ name }) => name);
  return svgOf({
    title: { text: title, subtitle },
    hconcat: panels.map(({ unit, lines }, index) =>
      panel(unit, lines, names, { isFirst: index === 0, width: panels.length > 1 ? 240 : 360 }),
    ),
  });
}

function panel(unit, lines, names, { isFirst, width }) {
  const values = lines.flatMap(({ low, high }) => [low, high]);
  const [smallest, largest] = [Math.min(...values), Math.max(...values)];
  const isLogarithmic = smallest > 0 && largest / smallest > LOGARITHMIC_FROM;
  const linear = {
    type: 'quantitative',
    scale: { domainMin: 0 },
    axis: { title: unit, format: ',~f', tickCount: 4 },
  };
  const x = isLogarithmic ? logarithmic(unit, values, [1]) : linear;
  const axis = isFirst ? { title: null, grid: true } : { title: null, grid: true, labels: false };
  const y = { field: 'name', type: 'nominal', sort: names, axis };
  const color = { condition: { test: 'datum.isOurs', value: OURS }, value: OTHERS };
  const fill = { ...color, condition: [{ test: "datum.note !== ''", value: '#fff' }, color.condition] };
  return {
    width,
    height: ROW,
    data: { values: lines },
    layer: [
      {
        mark: { type: 'rule', strokeWidth: 2 },
        encoding: { x: { field: 'low', ...x }, x2: { field: 'high' }, y, color },
      },
      {
        mark: { type: 'point', size: 80, opacity: 1, strokeWidth: 2 },
        encoding: { x: { field: 'median', ...x }, y, stroke: color, fill },
      },
      {
        mark: { type: 'text', align: 'left', dx: 10, baseline: 'middle', color: INK },
        encoding: { x: { field: 'high', ...x }, y, text: { field: 'text' } },
      },
    ],
  };
}

/** An axis from the smallest to the largest value, with grid lines at `digits` times powers of ten. */
function logarithmic(title, values, digits) {
  const positive = values.filter((value) => value > 0);
  const [from, to] = [Math.min(...positive) / 1.2, Math.max(...positive) * 1.2];
  const powers = Array.from({ length: 12 }, (_, index) => 10 ** (index - 4));
  const marks = powers.flatMap((power) => digits.map((digit) => Number((digit * power).toPrecision(1))));
  return {
    type: 'quantitative',
    scale: { type: 'log', domain: [from, to], nice: false },
    axis: { title: `${title}, logarithmic`, format: ',~', values: marks.filter((mark) => mark >= from && mark <= to) },
  };
}
