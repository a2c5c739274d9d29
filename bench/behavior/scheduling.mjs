// Three instances of an application schedule one job for every second. How often does it run? With --draw, saves the
// results and updates docs/comparisons.md.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { ensureBuilt } from '../../scripts/build.mjs';
import { root } from '../../scripts/ensure-installed.mjs';
import { drawPages, SCHEDULING } from './pages.mjs';

const PROCESS = join(import.meta.dirname, 'scheduling-process.mjs');
const TICKS = 8;

ensureBuilt();
const { schedulers } = await import('./schedulers.mjs');

const situations = {
  'Runs of a job of 20 ms in 8 s': (name) => observed(name, { takes: 20 }, ({ begins }) => `${begins.length}`),
  'The same, and the clock of one instance is 500 ms late': (name) =>
    observed(name, { takes: 20, late: 500 }, ({ begins }) => `${begins.length}`),
  'A job of 2.5 s: most runs at the same time': (name) => observed(name, { takes: 2_500 }, ({ most }) => `${most}`),
  'The instance that runs the job is killed: the next run begins after': (name) => afterKill(name),
};

const rows = {};
for (const [question, show] of Object.entries(situations)) {
  const cells = {};
  console.log(question);
  for (const { name } of schedulers) {
    cells[name] = await show(name);
    console.log(`  ${name.padEnd(26)} ${cells[name]}`);
  }
  rows[question] = cells;
}
if (process.argv.includes('--draw')) {
  keep();
  drawPages();
}

/**
 * Three instances on a dedicated Redis. `seen` collects their reports, which Node buffers until the first listener is
 * attached.
 */
async function instances(name, { takes, late = 0 }) {
  const server = await startRedisServer();
  const all = [0, 0, late].map((by) => fork(PROCESS, [name, server.url, by, takes].map(String)));
  const seen = [];
  for (const each of all) each.on('message', (message) => seen.push({ ...message, by: each }));
  while (seen.filter(({ ready }) => ready).length < all.length) await sleep(10);
  return {
    all,
    seen,
    async stop() {
      for (const each of all) each.kill('SIGKILL');
      for (const each of all) if (each.exitCode === null && each.signalCode === null) await once(each, 'exit');
      await server.stop();
    },
  };
}

/** What the instances do for several seconds, after they have elected their leader. */
async function observed(name, options, describe) {
  const { seen, stop } = await instances(name, options);
  // Between a late instance's tick and the next tick of the others.
  const from = Math.floor(Date.now() / 1_000) * 1_000 + 3_750;
  const until = from + TICKS * 1_000;
  await sleep(until + 200 - Date.now());
  await stop();
  const begins = seen.filter(({ begin }) => begin >= from && begin < until);
  let inside = 0;
  let most = 0;
  for (const { begin, end } of seen.toSorted((a, b) => timeOf(a) - timeOf(b))) {
    inside += begin ? 1 : end ? -1 : 0;
    if (begin >= from) most = Math.max(most, inside);
  }
  return describe({ begins, most });
}

function timeOf({ begin = 0, end = begin }) {
  return end;
}

/** Kills the instance that has started a job of 400 ms, and waits for the next one to start. */
async function afterKill(name) {
  const { all, seen, stop } = await instances(name, { takes: 400 });
  await sleep(3_000);
  const next = async (from, others) => {
    for (const deadline = from + 40_000; Date.now() < deadline; await sleep(5)) {
      const found = seen.find(({ begin, by }) => begin > from && others.includes(by));
      if (found) return found;
    }
    return undefined;
  };
  const { by: killed } = await next(Date.now(), all);
  killed.kill('SIGKILL');
  const at = Date.now();
  const found = await next(
    at,
    all.filter((each) => each !== killed),
  );
  await stop();
  return found ? `${((found.begin - at) / 1_000).toFixed(1)} s` : 'more than 40 s';
}

function keep() {
  const kept = {
    date: new Date().toISOString().slice(0, 10),
    node: process.versions.node,
    packages: Object.fromEntries(schedulers.map(({ name }) => [name, versionOf(name)])),
    rows,
  };
  writeFileSync(SCHEDULING, `${JSON.stringify(kept, undefined, 2)}\n`);
}

function versionOf(name) {
  const own = name === 'nestjs-distributed-lock' ? 'package.json' : undefined;
  const file =
    own ??
    (name === '@nestjs/schedule' ? `node_modules/${name}` : `bench/peers/node_modules/${name}`) + '/package.json';
  return JSON.parse(readFileSync(join(root, file), 'utf8')).version;
}
