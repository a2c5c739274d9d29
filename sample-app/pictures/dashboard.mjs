// node sample-app/pictures/dashboard.mjs runs two processes on one Redis, which it freezes for a while, and draws the
// panels of docs/monitoring/grafana-dashboard.json for that run into docs/images/dashboard.svg.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureBuilt } from '../../scripts/build.mjs';
import { ensureInstalled, root } from '../../scripts/ensure-installed.mjs';
import { ensureServers } from '../../scripts/ensure-servers.mjs';

const BEFORE = 20;
const FROZEN = 8;
const AFTER = 32;
const RATE_INTERVAL = '5s';

const COLUMNS = 3;
const [WIDTH, HEIGHT] = [300, 130];
const ROWS = 6;
const COLORS = ['#1c7ed6', '#f08c00', '#2f9e44', '#e03131', '#7048e8', '#0c8599', '#868e96'];
const UNITS = { s: 's', ops: '/s', short: '' };

ensureInstalled();
ensureInstalled(join(root, 'scripts/charts'));
ensureBuilt();
ensureServers(['redis-server', 'prometheus']);
const { startPrometheus } = await import('../../test/servers/prometheus-server.mjs');
const { startRedisServer } = await import('../../test/servers/redis-server.mjs');
const { freePort } = await import('../../test/servers/server-process.mjs');
const { svgOf } = await import('../../scripts/charts/svg.mjs');

const { panels } = JSON.parse(readFileSync(join(root, 'docs/monitoring/grafana-dashboard.json'), 'utf8'));
const file = join(root, 'docs/images/dashboard.svg');
const { from, frozenAt, results } = await measure();
mkdirSync(join(root, 'docs/images'), { recursive: true });
writeFileSync(file, await svgOf(dashboard()));

/** Runs the shop, and queries Prometheus for the data of each panel. */
async function measure() {
  const redis = await startRedisServer();
  const targets = {};
  const shops = [];
  let prometheus;
  try {
    for (const name of ['shop-1', 'shop-2']) {
      const port = await freePort();
      const env = { ...process.env, INSTANCE: name, METRICS_PORT: String(port), REDIS_URL: redis.url };
      const shop = fork(join(import.meta.dirname, 'dashboard-shop.mjs'), { env });
      shops.push(shop);
      await once(shop, 'message');
      targets[name] = `127.0.0.1:${port}`;
    }
    prometheus = await startPrometheus(targets);
    await sleep(10_000); // until it scrapes both, and rates are even
    const start = Date.now() / 1000;
    await sleep(BEFORE * 1000);
    const frozen = Date.now() / 1000;
    redis.signal('SIGSTOP');
    await sleep(FROZEN * 1000);
    redis.signal('SIGCONT');
    await sleep(AFTER * 1000);
    const end = start + BEFORE + FROZEN + AFTER;
    const asked = panels.map(({ targets: [{ expr }] }) => prometheus.range(filledIn(expr), start, end, 1));
    return { from: start, frozenAt: frozen - start, results: await Promise.all(asked) };
  } finally {
    for (const shop of shops) shop.disconnect();
    await prometheus?.stop();
    await redis.stop();
  }
}

/** Replaces the variables as Grafana does if everything is selected. */
function filledIn(expression) {
  return expression.replaceAll('$__rate_interval', RATE_INTERVAL).replaceAll(/\$\w+/g, '.*');
}

function dashboard() {
  return {
    columns: COLUMNS,
    spacing: 28,
    concat: panels.map((panel, index) => (panel.type === 'table' ? tableOf : chartOf)(panel, results[index])),
    resolve: { scale: { color: 'independent' } },
  };
}

/** The table rows at the end of the run. */
function tableOf({ title, transformations: [{ options }] }, series) {
  const columns = Object.entries(options.renameByName).sort(
    ([one], [other]) => options.indexByName[one] - options.indexByName[other],
  );
  const head = columns.map(([, name]) => name);
  const rows = series
    .map(({ metric, values }) => ({ metric, seconds: Number(values.at(-1)[1]) }))
    .sort((one, other) => other.seconds - one.seconds)
    .slice(0, ROWS)
    .map(({ metric, seconds }) =>
      columns.map(([label]) => (label === 'Value' ? `${seconds.toFixed(1)} s` : (metric[label] ?? ''))),
    );
  const cells = [head, ...rows].flatMap((row, line) => row.map((text, column) => ({ text, line, column })));
  return {
    title: { text: title, fontSize: 13 },
    width: (head.length * WIDTH) / 3.5,
    height: HEIGHT,
    data: { values: cells },
    mark: { type: 'text', align: 'left', baseline: 'top', fontSize: 11 },
    encoding: {
      x: { field: 'column', type: 'quantitative', scale: { domain: [0, head.length] }, axis: null },
      y: { field: 'line', type: 'quantitative', scale: { domain: [0, ROWS + 1], reverse: true }, axis: null },
      text: { field: 'text' },
      color: { condition: { test: 'datum.line === 0', value: '#656d76' }, value: '#1f2328' },
    },
  };
}

function chartOf({ title, targets: [{ legendFormat }], fieldConfig: { defaults } }, series) {
  const values = series.flatMap(({ metric, values }) => {
    const name = legendFormat.replaceAll(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? '').trim() || '(no name)';
    return values.map(([time, value]) => ({
      name,
      at: time - from,
      value: Number.isFinite(Number(value)) ? Number(value) : null,
    }));
  });
  const isBars = defaults.custom.drawStyle === 'bars';
  const names = [...new Set(values.map(({ name }) => name))];
  const isEmpty = values.every(({ value }) => value === null || value === 0);
  const x = {
    type: 'quantitative',
    scale: { domain: [0, BEFORE + FROZEN + AFTER] },
    axis: { title: null, values: [0, 20, 40, 60], labelExpr: "datum.value + ' s'", grid: false },
  };
  const y = {
    field: 'value',
    type: 'quantitative',
    stack: null,
    scale: isEmpty ? { domain: [0, 1] } : { domainMin: 0 },
    axis: { title: null, tickCount: 3, labelExpr: `datum.label + '${UNITS[defaults.unit]}'` },
  };
  const color = {
    field: 'name',
    type: 'nominal',
    scale: { domain: names, range: COLORS },
    legend: {
      title: null,
      orient: 'bottom',
      columns: 2,
      labelLimit: 0,
      symbolType: isBars ? 'square' : 'stroke',
      symbolStrokeWidth: 3,
    },
  };
  const mark = isBars ? { type: 'bar', width: 3 } : { type: 'line', strokeWidth: 1.5, interpolate: 'linear' };
  return {
    title: { text: title, fontSize: 13 },
    width: WIDTH,
    height: HEIGHT,
    layer: [
      {
        data: { values: [{ begin: frozenAt, end: frozenAt + FROZEN, text: 'Redis frozen' }] },
        layer: [
          {
            mark: { type: 'rect', color: '#1f2328', opacity: 0.07 },
            encoding: { x: { field: 'begin', ...x }, x2: { field: 'end' } },
          },
          {
            mark: { type: 'text', align: 'left', baseline: 'top', dx: 2, dy: 2, fontSize: 9, color: '#656d76' },
            encoding: { x: { field: 'begin', ...x }, y: { value: 0 }, text: { field: 'text' } },
          },
        ],
      },
      { data: { values }, mark, encoding: { x: { field: 'at', ...x }, y, color } },
    ],
  };
}
