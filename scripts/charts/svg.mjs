import { parse, View } from 'vega';
import { compile } from 'vega-lite';

const INK = '#1f2328';
const DIM = '#656d76';
const GRID = '#e6e9ec';
const FONT = 'system-ui, sans-serif';

/** Renders a Vega-Lite chart as SVG with a white background, so that it is readable on a dark page, too. */
export async function svgOf(chart) {
  const config = {
    background: '#fff',
    font: FONT,
    padding: 12,
    view: { stroke: null },
    title: { anchor: 'start', color: INK, fontSize: 14, subtitleColor: DIM, subtitlePadding: 4, offset: 12 },
    axis: {
      labelColor: INK,
      titleColor: DIM,
      titleFontWeight: 'normal',
      gridColor: GRID,
      domain: false,
      ticks: false,
      labelPadding: 6,
      labelLimit: 0,
    },
    legend: { labelColor: INK, titleColor: DIM, titleFontWeight: 'normal' },
  };
  const { spec } = compile({ ...chart, config }, { logger: strict });
  const view = new View(parse(spec), { renderer: 'none' });
  try {
    return `${await view.toSVG()}\n`;
  } finally {
    view.finalize();
  }
}

// A Vega-Lite warning indicates a mistake in the chart.
const strict = {
  level: () => strict,
  error: fail,
  warn: fail,
  info: () => strict,
  debug: () => strict,
};

function fail(...messages) {
  throw new Error(`A chart cannot be drawn: ${messages.join(' ')}`);
}
