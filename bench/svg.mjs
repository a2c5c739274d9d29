// Two kinds of charts as plain SVG, which a review can read as text.
import { number } from './table.mjs';

const WIDTH = 760;
const LEFT = 190;
const RIGHT = 110;
const HIGHLIGHT = '#d9480f';
const SERIES = [HIGHLIGHT, '#1c7ed6', '#2f9e44', '#9c36b5', '#868e96'];
// With a linear axis, a bar of a thirtieth of the longest is invisible.
const LOGARITHMIC_FROM = 30;

/** Horizontal bars with the quartiles as whiskers. `lines`: { name, median, low, high, isOurs, limit }. */
export function bars({ title, unit, lines, limit }) {
  const shown = lines.flatMap(({ low, median, high }) => [low, median, high]).concat(limit ?? []);
  const positive = shown.filter((value) => value > 0);
  const largest = Math.max(...positive);
  const isLogarithmic = largest / Math.min(...positive) > LOGARITHMIC_FROM;
  const smallest = isLogarithmic ? 10 ** Math.floor(Math.log10(Math.min(...positive)) - 0.01) : 0;
  const scale = isLogarithmic
    ? (value) => Math.log(Math.max(value, smallest) / smallest) / Math.log(largest / smallest)
    : (value) => value / largest;
  const x = (value) => LEFT + scale(value) * (WIDTH - LEFT - RIGHT);
  const rows = lines.flatMap(({ name, median, low, high, isOurs }, index) => {
    const y = 48 + index * 24;
    return [
      text(LEFT - 8, y + 12, name, `text-anchor="end"${isOurs ? ' font-weight="600"' : ''}`),
      `<rect x="${LEFT}" y="${y}" width="${round(Math.max(x(median) - LEFT, 1))}" height="16" fill="${isOurs ? HIGHLIGHT : '#868e96'}"/>`,
      low === high ? '' : `<path class="line" d="M${round(x(low))} ${y + 8}H${round(x(high))}" stroke-width="1.5"/>`,
      text(Math.max(x(median), x(high)) + 6, y + 12, number(median)),
    ];
  });
  const height = 48 + lines.length * 24 + 12;
  const bar =
    limit === undefined
      ? []
      : [
          `<path class="line" d="M${round(x(limit))} 42V${height - 10}" stroke-dasharray="4 3"/>`,
          text(x(limit), 38, 'bar', 'text-anchor="middle" font-size="10"'),
        ];
  return svg(height, title, [
    text(8, 18, title, 'font-weight="600" font-size="14"'),
    text(8, 34, `${unit}${isLogarithmic ? ', logarithmic' : ''}`, 'class="dim"'),
    ...rows,
    ...bar,
  ]);
}

/** Lines over a growing quantity, with two logarithmic axes. `series`: { name, values } with one value for each point. */
export function growth({ title, unit, along, points, series }) {
  const TOP = 52;
  const BOTTOM = 292;
  const values = series.flatMap((each) => each.values).filter((value) => value > 0);
  const low = 10 ** Math.floor(Math.log10(Math.min(...values)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...values)));
  const left = 70;
  const x = (point) => left + (Math.log(point) / Math.log(points.at(-1))) * (WIDTH - left - RIGHT - 70);
  const y = (value) => BOTTOM - (Math.log(value / low) / Math.log(high / low)) * (BOTTOM - TOP);
  const grid = [];
  for (let value = low; value <= high * 1.001; value *= 10) {
    grid.push(`<path class="grid" d="M${left} ${round(y(value))}H${WIDTH - RIGHT - 70}"/>`);
    grid.push(text(left - 6, y(value) + 4, value.toLocaleString('en'), 'text-anchor="end" class="dim"'));
  }
  for (const point of points) {
    grid.push(text(x(point), BOTTOM + 16, point.toLocaleString('en'), 'text-anchor="middle" class="dim"'));
  }
  // Labels at the ends of the lines. They are moved apart if lines end at the same height.
  const ends = series
    .map(({ name, values: those }, index) => ({ name, index, y: y(those.at(-1)) }))
    .sort((a, b) => a.y - b.y);
  for (let index = 1; index < ends.length; index += 1) {
    ends[index].y = Math.max(ends[index].y, ends[index - 1].y + 14);
  }
  return svg(BOTTOM + 40, title, [
    text(8, 18, title, 'font-weight="600" font-size="14"'),
    text(8, 34, `${unit}, both axes logarithmic`, 'class="dim"'),
    ...grid,
    text((left + WIDTH - RIGHT - 70) / 2, BOTTOM + 32, along, 'text-anchor="middle" class="dim"'),
    ...series.map(({ values: those }, index) => {
      const path = those
        .map((value, at) => `${at === 0 ? 'M' : 'L'}${round(x(points[at]))} ${round(y(value))}`)
        .join('');
      return `<path d="${path}" fill="none" stroke="${SERIES[index]}" stroke-width="2"/>`;
    }),
    ...ends.map(({ name, index, y: at }) =>
      text(WIDTH - RIGHT - 62, at + 4, name, `style="fill:${SERIES[index]}"${index === 0 ? ' font-weight="600"' : ''}`),
    ),
  ]);
}

function svg(height, title, parts) {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" font-family="system-ui, sans-serif" font-size="12">`,
    `<title>${escaped(title)}</title>`,
    '<style>text{fill:#1f2328}.dim{fill:#656d76}.line{stroke:#1f2328;fill:none}.grid{stroke:#d0d7de;fill:none}' +
      '@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#8d96a0}.line{stroke:#e6edf3}.grid{stroke:#30363d}}</style>',
    ...parts.filter((part) => part !== ''),
    '</svg>\n',
  ].join('\n');
}

function text(x, y, content, attributes = '') {
  return `<text x="${round(x)}" y="${round(y)}"${attributes && ` ${attributes}`}>${escaped(content)}</text>`;
}

function round(value) {
  return Number(value.toFixed(1));
}

function escaped(content) {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
