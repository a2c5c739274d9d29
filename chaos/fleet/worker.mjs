// A process of the application: some logical clients that loop, and the faults that can only happen inside of a process.
import { setTimeout as sleep } from 'node:timers/promises';
import { connectToResource } from '../judge/resource-client.mjs';
import { seededRandom } from '../random.mjs';
import { subjects } from '../subjects/index.mjs';
import { Client } from './client.mjs';

const settings = JSON.parse(process.argv[2]);
const resource = await connectToResource(settings.resource);
await resource.tell({ event: 'hello', worker: settings.worker });
const subject = await subjects[settings.subject].connect(settings);

const realNow = Date.now;
let running = false;
let leaving = false;
let loops = [];
let sections = 0;

async function loop(client, random) {
  while (running) {
    await client.section();
    sections += 1;
    await sleep(random.between(0, settings.think));
  }
}

const orders = {
  run() {
    running = true;
    loops = clients.map(({ client, random }) => loop(client, random));
  },
  /** No new section; those under way and those that wait come to their end. */
  async drain() {
    running = false;
    await Promise.all(loops);
    process.send({ type: 'drained', pending: subject.pending?.() ?? 0 });
  },
  block({ milliseconds }) {
    for (const until = performance.now() + milliseconds; performance.now() < until;);
  },
  clock({ step }) {
    Date.now = () => realNow() + step;
  },
  /** Whether it is done is unknown while the record cannot be reached. */
  switch({ engine }) {
    subject.switchTo(engine).catch(() => undefined);
  },
  usage() {
    globalThis.gc?.();
    const { heapUsed } = process.memoryUsage();
    // Not the clients' own sleeps.
    const handles = process.getActiveResourcesInfo().filter((kind) => kind !== 'Timeout').length;
    process.send({ type: 'usage', heapUsed, handles, sections });
  },
  /** Ends by itself if nothing was left open. */
  async stop() {
    await subject.stop();
    resource.close();
    leaving = true;
    process.disconnect();
  },
};

const clients = Array.from({ length: settings.clients }, (_, index) => {
  const random = seededRandom(`${settings.seed}/${settings.worker}/${index}`);
  const name = `${settings.worker}.${index}`;
  const { keys, fresh } = settings;
  return { random, client: new Client({ subject, resource, random, name, keys, fresh }) };
});
process.on('message', ({ type, ...order }) => void orders[type](order));
// Whoever has started it is gone: nobody would ever end it.
process.on('disconnect', () => leaving || process.exit());
process.send({ type: 'ready' });
