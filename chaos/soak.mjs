import { setTimeout as sleep } from 'node:timers/promises';
import { startEnvironment } from './environment.mjs';

const SAMPLES = 24;
/** By then, the data that keys leave behind for a few seconds is removed as fast as it is added. */
const WARM_UP = 12_000;
/** The share of sections that use a new key. These reveal memory that is retained for each key. */
const FRESH_KEYS = 0.25;
/**
 * The largest allowed ratio of the last third to the first, once everything has been used. Unbounded growth exceeds it.
 * `stored` includes what keys leave behind for a few seconds, which depends on the speed of the machine.
 */
const LEVELS = {
  heap: { what: 'heap of the workers, MiB', limit: 1.3 },
  handles: { what: 'handles of the workers', limit: 1.2 },
  connections: { what: 'connections at the servers', limit: 1.2 },
  stored: { what: 'stored in the backend', limit: 2 },
};
/**
 * Growth per section after the first third: a leak is as large for the last section as for the first. Heap and keys
 * always `drift` by this much, for example because code is compiled late. A run whose limit is below the drift proves
 * nothing.
 */
const LEAKS = {
  heap: { what: 'bytes of heap per section', scale: 2 ** 20, limit: 32, drift: 2 * 2 ** 20, digits: 1 },
  stored: { what: 'stored per section', scale: 1, limit: 0.02, drift: 500, digits: 3 },
};
const GROWS = 'GROWS';

/** Runs moderate load without faults, and measures whether memory, handles, connections, or stored data grow. */
export async function soak(name, { seed, milliseconds, library }) {
  const load = { clients: 4, think: 40, freshKeys: FRESH_KEYS };
  const environment = await startEnvironment(name, { seed, library, ...load });
  const samples = [];
  try {
    environment.fleet.run();
    await sleep(WARM_UP);
    for (let sample = 0; sample < SAMPLES; sample += 1) {
      await sleep(milliseconds / SAMPLES);
      samples.push(await measure(environment));
    }
    await environment.quiesce();
  } finally {
    await environment.close();
  }
  const verdict = await environment.verdict();
  const rows = [...levels(samples), ...leaks(samples)];
  const isFlat = verdict.violations.length === 0 && rows.every(({ state }) => state !== GROWS);
  if (isFlat) await environment.deleteHistory();
  return { name, subject: environment.subject, verdict, history: verdict.history, rows, isFlat };
}

function levels(samples) {
  const third = SAMPLES / 3;
  const mean = (part, field) => part.reduce((total, each) => total + each[field], 0) / part.length;
  return Object.entries(LEVELS).map(([field, { what, limit }]) => {
    const [early, late] = [samples.slice(0, third), samples.slice(-third)].map((part) => mean(part, field));
    const state = late > early * limit + 1 ? GROWS : 'flat';
    return { what, early: rounded(early, 1), late: rounded(late, 1), digits: 1, state };
  });
}

function leaks(samples) {
  const after = samples.slice(SAMPLES / 3);
  const sections = after.at(-1).sections - after[0].sections;
  return Object.entries(LEAKS).map(([field, { what, scale, limit, drift, digits }]) => {
    const growth = slope(after, field) * scale;
    const state = sections * limit <= drift ? 'too few sections to say' : growth > limit ? GROWS : 'flat';
    return { what, late: rounded(growth, digits), digits, state };
  });
}

async function measure({ fleet, backend }) {
  const usage = await fleet.usage();
  const sum = (field) => usage.reduce((total, each) => total + each[field], 0);
  const ofServers = async (query) => {
    const values = await Promise.all(backend.servers.map((server) => server[query]?.() ?? 0));
    return values.reduce((total, value) => total + value, 0);
  };
  return {
    heap: sum('heapUsed') / 2 ** 20,
    sections: sum('sections'),
    handles: sum('handles'),
    connections: await ofServers('connections'),
    stored: await ofServers('stored'),
  };
}

/** The growth of this field per section, by least squares. */
function slope(samples, field) {
  const mean = (value) => samples.reduce((total, each) => total + value(each), 0) / samples.length;
  const [sections, level] = [mean((each) => each.sections), mean((each) => each[field])];
  const covariance = mean((each) => (each.sections - sections) * (each[field] - level));
  return covariance / mean((each) => (each.sections - sections) ** 2);
}

function rounded(value, digits) {
  return Number(value.toFixed(digits));
}
