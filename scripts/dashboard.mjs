// node scripts/dashboard.mjs: runs two processes on one Redis, which it freezes for a while, and draws what the panels of
// docs/monitoring/grafana-dashboard.json show of that run into docs/images/dashboard.svg.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureBuilt } from './build.mjs';
import { ensureInstalled, root } from './ensure-installed.mjs';
import { ensureServers } from './ensure-servers.mjs';

const BEFORE = 20;
const FROZEN = 8;
const AFTER = 32;
const RATE_INTERVAL = '5s';

const COLUMNS = 3;
const [WIDTH, HEIGHT, GAP] = [400, 236, 12];
const PLOT = { left: 52, right: WIDTH - 20, top: 40, bottom: 168 };
const COLORS = ['#1c7ed6', '#f08c00', '#2f9e44', '#e03131', '#7048e8', '#0c8599', '#868e96'];
const UNITS = { s: 's', ops: '/s', short: '' };

ensureInstalled();
ensureBuilt();
ensureServers(['redis-server', 'prometheus']);
const { startPrometheus } = await import('../test/servers/prometheus-server.mjs');
const { startRedisServer } = await import('../test/servers/redis-server.mjs');
const { freePort } = await import('../test/servers/server-process.mjs');

const { panels } = JSON.parse(readFileSync(join(root, 'docs/monitoring/grafana-dashboard.json'), 'utf8'));
const file = join(root, 'docs/images/dashboard.svg');
const { from, frozenAt, results } = await measure();
mkdirSync(join(root, 'docs/images'), { recursive: true });
writeFileSync(file, drawing());

/** Runs the shop, and asks Prometheus for what each panel shows. */
async function measure() {
  const redis = await startRedisServer();
  const targets = {};
  const shops = [];
  let prometheus;
  try {
    for (const name of ['shop-1', 'shop-2']) {
      const port = await freePort();
      const env = { ...process.env, METRICS_PORT: String(port), REDIS_URL: redis.url };
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

/** As Grafana does with everything selected. */
function filledIn(expression) {
  return expression.replaceAll('$__rate_interval', RATE_INTERVAL).replaceAll(/\$\w+/g, '.*');
}

function drawing() {
  const rows = Math.ceil(panels.length / COLUMNS);
  const [width, height] = [COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP];
  const parts = panels.map((panel, index) => {
    const [column, row] = [index % COLUMNS, Math.floor(index / COLUMNS)];
    const place = `translate(${GAP + column * (WIDTH + GAP)} ${GAP + row * (HEIGHT + GAP)})`;
    return `<g transform="${place}">\n${drawPanel(panel, results[index]).join('\n')}\n</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" font-family="system-ui, sans-serif" font-size="11" fill="#1f2328">`,
    '<title>The panels of the dashboard, over a minute in which Redis is frozen for a while</title>',
    `<rect width="${width}" height="${height}" fill="#f4f5f7"/>`,
    ...parts,
    '</svg>\n',
  ].join('\n');
}

function drawPanel({ title, targets, fieldConfig: { defaults } }, series) {
  const lines = series
    .map(({ metric, values }) => ({
      name:
        targets[0].legendFormat.replaceAll(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? '').trim() || '(no name)',
      points: values.map(([time, value]) => [time - from, Number(value)]).filter(([, value]) => Number.isFinite(value)),
    }))
    .filter(({ points }) => points.length > 0);
  const top = niceMaximum(Math.max(0, ...lines.flatMap(({ points }) => points.map(([, value]) => value))));
  const x = (second) => PLOT.left + (second / (BEFORE + FROZEN + AFTER)) * (PLOT.right - PLOT.left);
  const y = (value) => PLOT.bottom - (value / top) * (PLOT.bottom - PLOT.top);
  const second = x(1) - x(0);
  return [
    `<rect width="${WIDTH}" height="${HEIGHT}" rx="4" fill="#fff" stroke="#d0d7de"/>`,
    text(12, 22, title, 'font-size="13" font-weight="600"'),
    `<rect x="${round(x(frozenAt))}" y="${PLOT.top}" width="${round(FROZEN * second)}" height="${PLOT.bottom - PLOT.top}" fill="#1f2328" opacity="0.07"/>`,
    ...[0, top / 2, top].flatMap((value) => [
      `<path d="M${PLOT.left} ${round(y(value))}H${PLOT.right}" stroke="#e6e9ec"/>`,
      text(PLOT.left - 6, y(value) + 4, `${round(value)}${UNITS[defaults.unit]}`, 'text-anchor="end" fill="#57606a"'),
    ]),
    ...[0, 20, 40, 60].map((at) => text(x(at), PLOT.bottom + 14, `${at} s`, 'text-anchor="middle" fill="#57606a"')),
    ...lines.flatMap(({ points }, index) =>
      defaults.custom.drawStyle === 'bars'
        ? points
            .filter(([, value]) => value > 0)
            .map(([at, value]) => {
              const width = second / lines.length;
              const left = x(at) + (index - lines.length / 2) * width;
              return `<rect x="${round(left)}" y="${round(y(value))}" width="${round(width)}" height="${round(PLOT.bottom - y(value))}" fill="${color(index)}"/>`;
            })
        : `<path d="${path(points, x, y)}" fill="none" stroke="${color(index)}" stroke-width="1.5"/>`,
    ),
    text(x(frozenAt) + 3, PLOT.top - 3, 'Redis frozen', 'font-size="9" fill="#57606a"'),
    ...legend(lines),
  ];
}

/** A gap of more than a step is a gap in the line. */
function path(points, x, y) {
  return points
    .map(
      ([at, value], index) =>
        `${index > 0 && at - points[index - 1][0] < 1.5 ? 'L' : 'M'}${round(x(at))} ${round(y(value))}`,
    )
    .join('');
}

function legend(lines) {
  let [left, top] = [12, PLOT.bottom + 34];
  return lines.flatMap(({ name }, index) => {
    const width = 24 + name.length * 6.2;
    if (left + width > WIDTH) [left, top] = [12, top + 16];
    const entry = [
      `<rect x="${round(left)}" y="${top - 8}" width="10" height="4" fill="${color(index)}"/>`,
      text(left + 14, top - 2, name),
    ];
    left += width;
    return entry;
  });
}

/** 1, 2 or 5 with zeros. */
function niceMaximum(value) {
  if (value === 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((bound) => bound >= value);
}

function color(index) {
  return COLORS[index % COLORS.length];
}

function text(x, y, content, attributes = '') {
  return `<text x="${round(x)}" y="${round(y)}" ${attributes}>${content.replaceAll('&', '&amp;').replaceAll('<', '&lt;')}</text>`;
}

function round(value) {
  return Number(value.toPrecision(4));
}
