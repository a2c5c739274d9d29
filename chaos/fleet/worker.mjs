// One process of the application: looping logical clients, and the faults that can only happen inside a process.
import { setTimeout as sleep } from 'node:timers/promises';
import { connectToResource } from '../judge/resource-client.mjs';
import { seededRandom } from '../random.mjs';
import { subjects } from '../subjects/index.mjs';
import { Client } from './client.mjs';

const settings = JSON.parse(process.argv[2]);
const resource = await connectToResource(settings.resource);
await resource.record({ event: 'hello', worker: settings.worker });
const { longSections, oneKeyForEachClient } = subjects[settings.subject];
const subject = { longSections, ...(await subjects[settings.subject].connect({ ...settings, history: resource })) };

const realNow = Date.now;
let running = false;
let stopping = false;
let loops = [];
let sections = 0;
let announced;
/** What ends the sections that `letGo` ends, by key. */
const holds = new Map();

async function loop(client, random) {
  while (running) {
    await client.section(settings.given);
    sections += 1;
    await sleep(random.between(0, settings.think));
  }
}

/** Called when a lock starts being released. */
function onRelease(key) {
  if (key !== announced) return;
  announced = undefined;
  process.send({ type: 'releasing' });
}

const commands = {
  run() {
    running = true;
    loops = clients.map(({ client, random }) => loop(client, random));
  },
  /** Starts no new sections. Running sections and waiting callers finish. */
  async drain() {
    running = false;
    await Promise.all(loops);
    // Wait for runs that the jobs start on their own.
    while (subject.schedule && subject.pending() > 0) await sleep(50);
    // The coordinator may have timed out and disconnected.
    if (process.connected) process.send({ type: 'drained', pending: subject.pending?.() ?? 0 });
  },
  /** Runs sections in addition to the clients' own. */
  add({ sections }) {
    const [{ client }] = clients;
    loops.push(...sections.map((section) => client.section(section)));
  },
  /** Runs a section, in addition to the clients' own, that lasts until `letGo`. */
  hold({ section }) {
    const [{ client }] = clients;
    const over = new AbortController();
    holds.set(section.key, over);
    loops.push(client.section({ ...section, over: over.signal }));
  },
  letGo({ key }) {
    holds.get(key)?.abort();
    holds.delete(key);
  },
  announceRelease({ key }) {
    announced = key;
  },
  block({ milliseconds }) {
    for (const until = performance.now() + milliseconds; performance.now() < until;);
  },
  clock({ step }) {
    Date.now = () => realNow() + step;
  },
  /** A failure is ignored: while the casStore can't be reached, the outcome is unknown. */
  switch({ provider }) {
    subject.switchTo(provider).catch(() => undefined);
  },
  usage() {
    globalThis.gc?.();
    const { heapUsed } = process.memoryUsage();
    // Sleeping clients show up as timeouts, so timeouts aren't counted.
    const handles = process.getActiveResourcesInfo().filter((kind) => kind !== 'Timeout').length;
    process.send({ type: 'usage', heapUsed, handles, sections });
  },
  /** Afterwards, the process exits on its own unless something was left open. */
  async stop() {
    await subject.stop();
    resource.close();
    stopping = true;
    process.disconnect();
  },
};

const clients = Array.from({ length: oneKeyForEachClient ? settings.keys.length : settings.clients }, (_, index) => {
  const random = seededRandom(`${settings.seed}/${settings.worker}/${index}`);
  const name = `${settings.worker}.${index}`;
  const { freshKeys } = settings;
  const keys = oneKeyForEachClient ? [settings.keys[index]] : settings.keys;
  return { random, client: new Client({ subject, resource, random, name, keys, freshKeys, onRelease }) };
});
subject.schedule?.((section) => clients[settings.keys.indexOf(section.key)].client.section(section));
process.on('message', ({ type, ...details }) => void commands[type](details));
// If the coordinator dies, nothing else would end this process.
process.on('disconnect', () => stopping || process.exit());
process.send({ type: 'ready' });
