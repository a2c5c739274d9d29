// A process of the application: some logical clients that loop, and the faults that can only happen inside a process.
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
/** The ends of the sections that `letGo` ends, by their keys. */
const holds = new Map();

async function loop(client, random) {
  while (running) {
    await client.section(settings.given);
    sections += 1;
    await sleep(random.between(0, settings.think));
  }
}

/** Called when a lock is being released. */
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
  /** Starts no new section. Sections in flight and waiting callers come to their end. */
  async drain() {
    running = false;
    await Promise.all(loops);
    // Runs that the jobs begin by themselves.
    while (subject.schedule && subject.pending() > 0) await sleep(50);
    // Not if its time is over and the run has ended.
    if (process.connected) process.send({ type: 'drained', pending: subject.pending?.() ?? 0 });
  },
  /** Sections beside those of the clients. */
  add({ sections }) {
    const [{ client }] = clients;
    loops.push(...sections.map((section) => client.section(section)));
  },
  /** A section beside those of the clients that `letGo` ends. */
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
  /** The outcome is unknown while the casStore cannot be reached, so a failure says nothing. */
  switch({ provider }) {
    subject.switchTo(provider).catch(() => undefined);
  },
  usage() {
    globalThis.gc?.();
    const { heapUsed } = process.memoryUsage();
    // The sleeping clients are timeouts, so timeouts are not counted.
    const handles = process.getActiveResourcesInfo().filter((kind) => kind !== 'Timeout').length;
    process.send({ type: 'usage', heapUsed, handles, sections });
  },
  /** The process then exits by itself if nothing was left open. */
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
// When the coordinator dies, no other process would end this one.
process.on('disconnect', () => stopping || process.exit());
process.send({ type: 'ready' });
