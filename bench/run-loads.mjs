// The process of a candidate: runs loads on it, and answers what they measure.
import { setTimeout as sleep } from 'node:timers/promises';
import * as loads from './loads.mjs';

process.on('disconnect', () => process.exit());
const [, , module, name, args] = process.argv;
const { candidate } = await import(module);
const { acquire } = await candidate(name, ...JSON.parse(args));
process.on('message', async (load) => {
  // The process that asks runs on the same core, and must be asleep before a load of less than a millisecond.
  await sleep(5);
  // `send` refuses undefined, and some loads measure nothing.
  process.send((await loads[load.name](acquire, ...load.args)) ?? 'done');
});
process.send('ready');
